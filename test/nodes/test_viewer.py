"""
The view in a real browser: it shows the arm, and its buttons move it only while held.

Pages of other origins are refused.
"""

import base64
import contextlib
import functools
import http.server
import math
import re
import socket
import threading
import time
from urllib.parse import urlsplit

import browser as browsers
import numpy as np
import page_client
import psutil
import pytest
from geometry_msgs.msg import PointStamped
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Empty, String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory
from websockets.exceptions import ConnectionClosed

from vdl_ros.arm.model.geometry import expand
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.msg import (
    ArmPose,
    EmergencyStop,
    EmergencyStopState,
    MotorCommand,
    TargetStatus,
)
from vdl_ros.nodes.viewer import STANDSTILL_S
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import seconds

#: The longest time from the end of a button's repetitions to motors off that is allowed, s.
LET_GO_WITHIN = 0.6


class View:
    """A running viewer, the arm's side of its topics, and a browser that shows it."""

    def __init__(self, launch, peer, browser, *parameters):
        self.peer, self.browser = peer, browser
        self.process = launch('ros2', 'run', 'vdl_ros', 'viewer', '--ros-args', *(
            word for each in ('port:=0', *parameters) for word in ('-p', each)))
        self.motors = peer.listen(MotorCommand, 'arm/motors', QoSProfile(depth=1000))
        self.stops = peer.listen(
            EmergencyStop, 'arm/emergency_stop', qos.TOPICS['arm/emergency_stop'])
        self.goals = peer.listen(
            JointTrajectory, 'arm/joint_trajectory', qos.TOPICS['arm/joint_trajectory'])
        self._description = peer.talk(
            String, 'robot_description', qos.TOPICS['robot_description'])
        topic = 'arm/emergency_stop_state'
        self.stop_state = peer.talk(EmergencyStopState, topic, qos.TOPICS[topic])
        self._states = peer.talk(JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
        self.describe(expand())
        found = self.process.wait_for(lambda: re.search(
            r'view: (http://127.0.0.1:\d+/?\S*)\n', self.process.output), 'the address')
        self.url = found[1]
        # At one resolution: where drawing is slow viser lowers it, and every edge would change.
        self.browser.open(f'{self.url.rstrip("/")}/?fixedDpr=1')
        self.until(lambda: 'gripper close' in self.browser.text and 'Home' in self.browser.text,
                   'the panel')

    def describe(self, urdf):
        self._description.publish(String(data=urdf))

    def pose(self, *positions):
        self._states.publish(JointState(name=list(JOINTS), position=[
            float(each) for each in positions]))

    def until(self, condition, what, say=None, every=0.05):
        return self.peer.until(condition, what, say=say, every=every)

    def picture(self):
        """Return the part of the page where the arm is."""
        return self.browser.screenshot()[160:, 300:900].astype(int)

    def last(self):
        return self.motors[-1] if self.motors else MotorCommand()


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    """Return a browser that all tests use one after the other."""
    browser = browsers.Browser(tmp_path_factory.mktemp('browser') / 'chromedriver.txt')
    yield browser
    browser.close()


@pytest.fixture
def page(launch, peer, browser):
    """Return a viewer and its page."""
    yield View(launch, peer, browser)
    browser.leave()


@pytest.fixture
def strangers_port(tmp_path):
    """Return the port of a server with a page that is not the view's."""
    (tmp_path / 'index.html').write_text('<title>stranger</title>')
    handler = functools.partial(QuietHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def yellow(picture):
    """Return how many pixels have the colour of the arm."""
    red, green, blue = picture[..., 0], picture[..., 1], picture[..., 2]
    return int(((red > 150) & (green > 110) & (blue < 110)).sum())


def test_the_page_shows_the_arm_where_it_is(page, peer):
    page.until(lambda: yellow(page.picture()) > 300, 'the arm',
               say=lambda: page.pose(0, 0, 0, 0, 0))
    straight = page.picture()
    assert len(np.unique(straight.reshape(-1, 3), axis=0)) > 50
    page.until(lambda: '57.3°' in page.browser.text, 'the angle',
               say=lambda: page.pose(0, 1.0, 0.5, 0, 0))
    page.until(lambda: np.abs(page.picture() - straight).max(axis=-1).sum() > 255 * 300,
               'another image')
    # A ghost at the estimated pose, while estimates arrive.
    bent = page.picture()
    poses = peer.talk(ArmPose, 'arm/pose', qos.TOPICS['arm/pose'])

    def estimate():
        page.pose(0, 1.0, 0.5, 0, 0)
        poses.publish(ArmPose(name=list(JOINTS), position=[0.5, 0.2, 0.1, 0, 0], confident=True))

    def blue():
        picture = page.picture()
        return int((picture[..., 2] - bent[..., 2] - (picture[..., 0] - bent[..., 0]) > 40).sum())

    # Estimates come all the time, also while the browser draws.
    with peer.saying(estimate):
        page.until(lambda: blue() > 300, 'the ghost')
        page.until(lambda: 'The camera sees the arm.' in page.browser.text, 'the note')
    page.until(lambda: blue() < 30, 'no ghost any more')
    assert page.browser.errors() == []


def test_a_button_moves_its_motor_while_it_is_held(page, peer):
    page.browser.press('shoulder down')
    page.until(lambda: sum(each.shoulder for each in page.motors) > 5, 'the commands')
    assert {(each.base, each.elbow, each.wrist, each.gripper, each.lamp, each.sender)
            for each in page.motors} == {(0, 0, 0, 0, 0, '/viewer')}
    stamps = [each.header.stamp.sec + each.header.stamp.nanosec * 1e-9 for each in page.motors]
    # Often enough for the driver's watchdog.
    assert np.median(np.diff(stamps)) < 0.25
    page.browser.let_go()
    page.until(lambda: page.last().shoulder == 0, 'motors off')
    page.browser.press('gripper close')
    page.until(lambda: page.last().gripper == -1, 'the gripper')
    count = len(page.motors)
    page.browser.let_go()
    page.until(lambda: page.last().gripper == 0, 'motors off')
    # No commands in between.
    assert all(each.shoulder == 0 for each in page.motors[count:])


def test_dead_browser_releases_its_buttons(launch, peer, tmp_path, took):
    page = View(launch, peer, browsers.Browser(tmp_path / 'chromedriver.txt'))
    page.browser.press('base left')
    page.until(lambda: page.last().base == 1, 'the command')
    page.browser.kill()
    page.until(lambda: page.last().base == 0, 'motors off')
    moving = [each.header.stamp for each in page.motors if each.base]
    off = page.last().header.stamp
    monotonic = time.monotonic() - time.time()
    assert took(monotonic + seconds(moving[-1]), monotonic + seconds(off)) < LET_GO_WITHIN
    page.browser.close()


def test_motors_are_off_after_a_viewer_that_ends_while_a_button_is_held(launch, peer):
    viewer = launch('ros2', 'run', 'vdl_ros', 'viewer', '--ros-args', '-p', 'port:=0')
    motors = peer.listen(MotorCommand, 'arm/motors', qos.TOPICS['arm/motors'])
    address = viewer.wait_for(lambda: re.search(r'view: (http://\S+)', viewer.output), 'it')[1]
    with page_client.PageClient(address) as page:
        page.send(page_client.CAMERA)
        page.read('base left')
        hold = page_client.kinds(page.ids['base left'])['GuiButtonHoldMessage']

        def press():
            with contextlib.suppress(ConnectionClosed):
                page.send(hold)

        # So often that some presses are not handled yet at the end.
        with peer.saying(press, every=0.002):
            peer.until(lambda: motors and motors[-1].base == 1, 'the command')
            viewer.interrupt()
            peer.until(lambda: viewer.process.poll() is not None, 'the end')
    peer.until(lambda: motors[-1].base == 0, 'motors off')


@pytest.mark.alone  # a standstill is measured
def test_a_target_that_is_dragged_is_published_while_there_is_a_policy(launch, peer):
    viewer = launch('ros2', 'run', 'vdl_ros', 'viewer', '--ros-args', '-p', 'port:=0')
    targets = peer.listen(PointStamped, 'arm/target', qos.TOPICS['arm/target'])
    status = peer.talk(TargetStatus, 'arm/target_status', qos.TOPICS['arm/target_status'])
    address = viewer.wait_for(lambda: re.search(r'view: (http://\S+)', viewer.output), 'it')[1]
    with page_client.PageClient(address) as page:
        page.send(page_client.CAMERA)
        page.read('EMERGENCY STOP')
        messages = page_client.kinds()

        def drag():
            for phase in ('DragStart', 'Update', 'DragEnd'):
                page.send(messages[f'TransformControls{phase}Message'])

        # Only while there is a policy.
        drag()
        alive = peer.listen(Empty, 'arm/viewer_alive', qos.TOPICS['arm/viewer_alive'])
        peer.until(lambda: len(alive) > 2, 'signs of life')
        assert not targets
        status.publish(TargetStatus(state='idle', target=[math.nan] * 3))
        peer.until(lambda: targets, 'a target', say=drag, every=0.1)
        point = targets[-1].point
        assert [point.x, point.y, point.z] == [0.1, 0.1, 0.2]
        assert targets[-1].header.frame_id == 'base_link'
        # What waited while the view stood still is not published.
        found = viewer.nodes('viewer')
        node = found[0] if found else psutil.Process(viewer.process.pid)
        node.suspend()
        begin = time.monotonic()
        drag()
        peer.until(lambda: time.monotonic() > begin + STANDSTILL_S + 0.5, 'the gap')
        count, seen = len(targets), len(alive)
        node.resume()
        peer.until(lambda: len(alive) > seen + 2, 'signs of life')
        assert len(targets) == count
        peer.until(lambda: len(targets) > count, 'a target', say=drag, every=0.1)
    assert 'refused' not in viewer.output


def test_the_emergency_stop_latches_until_it_is_released(page, peer):
    page.browser.press('base left')
    page.until(lambda: page.last().base == 1, 'the command')
    page.browser.let_go()
    page.browser.click('EMERGENCY STOP')
    page.until(lambda: page.stops and page.stops[-1].engage, 'the stop')
    assert page.stops[-1].sender == '/viewer'
    engaged = EmergencyStopState(engaged=True, sender='/viewer')
    engaged.header.stamp.sec = 7
    page.stop_state.publish(engaged)
    page.until(lambda: 'Emergency stop by /viewer' in page.browser.text, 'who engaged it')
    page.until(lambda: 'all motors are off' in page.browser.text, 'the note')
    page.until(lambda: not page.browser.enabled('base left'), 'the buttons are disabled')
    page.until(lambda: not page.browser.enabled('Go'), 'it is disabled too')
    # A late subscriber receives it.
    late = peer.listen(
        EmergencyStop, 'arm/emergency_stop', qos.TOPICS['arm/emergency_stop'])
    page.until(lambda: late, 'the latched stop')
    assert late[0].engage
    page.browser.click('Release the emergency stop')
    page.until(lambda: not page.stops[-1].engage, 'the release')
    assert page.stops[-1].releases.sec == 7
    assert not page.browser.enabled('base left'), 'the driver has not released it'
    count = len(page.motors)
    page.stop_state.publish(EmergencyStopState(neutral_required=True))
    page.until(lambda: page.browser.enabled('base left'), 'the buttons work')
    page.until(lambda: len(page.motors) > count, 'a neutral command')
    assert page.last().base == 0


def test_stop_engaged_elsewhere_is_shown(page, peer):
    page.stop_state.publish(EmergencyStopState(engaged=True, sender='/teleop'))
    page.until(lambda: not page.browser.enabled('base left'), 'the buttons are disabled')
    page.until(lambda: page.browser.enabled('Release the emergency stop'), 'its release')
    page.stop_state.publish(EmergencyStopState())
    page.until(lambda: page.browser.enabled('base left'), 'the buttons work')


def test_go_and_home_send_trajectories_within_motor_speed(page, peer):
    page.until(lambda: '28.6°' in page.browser.text, 'the angle',
               say=lambda: page.pose(0.5, 0.0, 0.0, 0.0, 0.0))
    page.until(lambda: page.browser.run(
        'return [...document.querySelectorAll("input")].some(each => each.value == "28.6")'),
        'the slider follows')

    def places():
        return page.browser.place('base left'), page.browser.place('Go')

    def undisturbed():
        """Return the places if there was no note before and after."""
        found = 'No joint measurements' not in page.browser.text and places()
        return found if 'No joint measurements' not in page.browser.text else None

    # A note that comes meanwhile moves no button away from under the mouse.
    with peer.saying(lambda: page.pose(0.5, 0.0, 0.0, 0.0, 0.0)):
        before = page.until(undisturbed, 'no note')
    page.until(lambda: 'No joint measurements.' in page.browser.text, 'a note')
    assert places() == before
    page.browser.click('Go')
    page.until(lambda: page.goals, 'a trajectory')
    goal = page.goals[-1]
    assert list(goal.joint_names) == list(JOINTS)
    assert list(goal.points[0].positions) == pytest.approx([0.5, 0, 0, 0, 0], abs=0.01)
    page.browser.click('Home')
    page.until(lambda: len(page.goals) == 2, 'the way home')
    home = page.goals[-1].points[0]
    assert list(home.positions) == [0.0] * 5
    # 0.5 rad at 0.349 rad/s.
    assert home.time_from_start.sec + home.time_from_start.nanosec * 1e-9 > 1.43


def test_buttons_of_episodes_are_there_while_there_is_a_recorder(page, peer):
    called = []

    def serve(name):
        def on_call(_, response):
            called.append(name)
            return response
        return peer.node.create_service(Trigger, f'record_episodes/{name}', on_call)

    state = peer.talk(String, 'record_episodes/state', qos.TOPICS['record_episodes/state'])
    state.publish(String(data='2 episodes are [saved](http://example.org)'))
    services = [serve(name) for name in ('start', 'success', 'discard')]
    page.until(lambda: '11.5°' in page.browser.text, 'a later angle',
               say=lambda: page.pose(0.2, 0, 0, 0, 0))
    # A button without its service would do nothing.
    assert 'Start episode' not in page.browser.text
    services.append(serve('failure'))
    page.until(lambda: '2 episodes are [saved](http' in page.browser.text, 'the state, as text')
    for label in ('Start episode', 'Save as success', 'Save as failure', 'Discard'):
        count = len(called)
        page.browser.click(label)
        page.until(lambda: len(called) > count, label)  # noqa: B023
    assert called == ['start', 'success', 'failure', 'discard']
    for each in services:
        peer.node.destroy_service(each)
    page.until(lambda: 'Start episode' not in page.browser.text, 'no buttons')


def test_images_are_shown_and_invalid_ones_refused(page, peer):
    images = peer.talk(Image, 'camera/image_raw', qos.TOPICS['camera/image_raw'])
    green = Image(width=64, height=48, step=192, encoding='rgb8', data=bytes([0, 200, 0]) * 3072)

    def pictures():
        picture = page.browser.screenshot().astype(int)
        return int(((picture[..., 1] > 150) & (picture[..., 0] < 60)
                    & (picture[..., 2] < 60)).sum())

    page.until(lambda: pictures() > 1000, 'the image', say=lambda: images.publish(green))
    for broken in (
            Image(width=64, height=48, step=192, encoding='rgb8', data=bytes(10)),
            Image(width=2**31, height=2**31, step=1, encoding='rgb8'),
            Image(width=64, height=48, step=192, encoding='unknown', data=bytes(9216))):
        lines = page.process.output.count('image refused')
        page.until(lambda lines=lines: page.process.output.count('image refused') > lines,
                   'the refusal', say=lambda broken=broken: images.publish(broken))
    page.until(lambda: pictures() > 1000, 'the image', say=lambda: images.publish(green))


def test_invalid_description_is_refused_and_the_arm_stays(page, peer):
    page.until(lambda: yellow(page.picture()) > 300, 'the arm')
    for text, reason in (('<robot', 'URDF'), (expand().replace('0.42', 'heavy'), 'mass')):
        page.describe(text)
        page.process.wait_for(lambda reason=reason: re.search(
            f'robot_description refused: .*{reason}', page.process.output), 'the reason')
    assert yellow(page.picture()) > 300
    # Another arm is taken instead.
    before = page.picture()
    page.describe(expand({'forearm_length': 0.2}))
    page.until(lambda: np.abs(page.picture() - before).max(axis=-1).sum() > 255 * 300,
               'the longer arm')


# What a page can do: open a websocket as the view's page does, and send if it opens.
SEND = '''
const [address, protocol, text, done] = arguments;
const bytes = Uint8Array.from(atob(text), each => each.charCodeAt(0));
const socket = new WebSocket(address, [protocol]);
socket.onopen = () => { socket.send(bytes); socket.close(); done('opened'); };
socket.onerror = () => done('refused');
'''


def test_pages_of_other_origins_are_refused_and_the_stop_works_after_each_message(
        page, peer, strangers_port, tmp_path):
    view = urlsplit(page.url)
    # The worst case: strangers who know the token.
    address = f'ws://{view.netloc}{view.path.rstrip("/")}'
    rebound = f'http://rebound.stranger.test:{view.port}'
    origins = [f'http://127.0.0.1:{strangers_port}', f'http://any.stranger.test:{strangers_port}']
    kinds = page_client.kinds()
    assert len(kinds) == 15
    stranger = browsers.Browser(tmp_path / 'strangers_driver.txt')
    try:
        for number, (kind, message) in enumerate(kinds.items()):
            stranger.open(f'{origins[number % 2]}/')
            data = base64.b64encode(page_client.encode(message)).decode()
            stranger.errors()
            assert stranger.run_async(SEND, address, page_client.PROTOCOL, data) == 'refused', kind
            assert '403' in ''.join(stranger.errors()), kind
            page.stops.clear()
            page.browser.click('EMERGENCY STOP')
            page.until(lambda: page.stops and page.stops[-1].engage, f'the stop after {kind}')
            page.stop_state.publish(EmergencyStopState(engaged=True))
            page.until(lambda: page.browser.enabled('Release the emergency stop'), 'its release')
            page.browser.click('Release the emergency stop')
            page.until(lambda: not page.stops[-1].engage, 'the release')
            page.stop_state.publish(EmergencyStopState())
            page.until(lambda: page.browser.enabled('base left'), 'the buttons work')
        # A name that now leads to this machine is the page's own origin, yet not the view's.
        stranger.open(f'{rebound}{view.path}')
        assert 'is not allowed' in stranger.text
        # Neither can the view be a part of a stranger's page.
        stranger.open(f'{origins[0]}/')
        stranger.run('const frame = document.createElement("iframe"); frame.src = arguments[0];'
                     'document.body.append(frame)', page.url)
        page.until(lambda: 'frame-ancestors' in ''.join(stranger.errors()), 'the refusal')
    finally:
        stranger.close()
    assert page.motors == []
    assert page.goals == []
    assert f"request refused: Origin '{origins[0]}' is not allowed" in page.process.output


def test_used_port_is_refused_in_one_line(launch):
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = launch('ros2', 'run', 'vdl_ros', 'viewer', '--ros-args', '-p', f'port:={port}')
        assert process.wait() == 2
    assert process.output.splitlines() == [
        f'viewer: view: 127.0.0.1:{port} cannot be used: Address already in use; '
        'port:=0 selects a free port']


def test_public_address_gives_a_warning(launch):
    process = launch('ros2', 'run', 'vdl_ros', 'viewer', '--ros-args', '-p', 'port:=0',
                     '-p', 'host:=0.0.0.0')
    process.wait_for(
        lambda: 'everyone who can reach this address can move' in process.output, 'a warning')
    process.interrupt()
    assert process.wait() == 0
