"""The view: its page shows the arm, and its buttons move it only while held.

Two tests use a real browser, the others a program that talks to the view as its page does.
"""

import contextlib
import itertools
import math
import re
import socket
import time

import numpy as np
import page_client
import psutil
import pytest
from rclpy.qos import QoSProfile
from rclpy.task import Future
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from websockets.exceptions import ConnectionClosed

from vdl_ros.arm.geometry import expand
from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.consent import StandstillDetector
from vdl_ros.msg import ArmPose, EmergencyStopState, MotorCommand, TargetStatus
from vdl_ros.nodes import viewer
from vdl_ros.ros.messages.joint_messages import seconds
from vdl_ros.srv import Confirm

GREEN = Image(width=64, height=48, step=192, encoding='rgb8', data=bytes([0, 200, 0]) * 3072)


class View:
    """A running viewer and the arm's side of its topics."""

    def __init__(self, peer, running):
        self.peer, self.running, self.browser = peer, running, None
        self.motors = peer.listen(MotorCommand, 'arm/motors', QoSProfile(depth=1000))
        self.stops, self.releases, self.goals = map(peer.listen, (
            'arm/emergency_stop', 'arm/emergency_stop_release', 'arm/joint_trajectory'))
        self._description, self.stop_state, self._states = map(
            peer.talk, ('robot_description', 'arm/emergency_stop_state', 'arm/joint_states'))
        self.describe(expand())
        self.url = peer.until(lambda: re.search(
            r'view: (http://127.0.0.1:\d+/?\S*)\n', running.output), 'the address')[1]

    def open_in(self, browser):
        self.browser = browser
        # At one resolution: where drawing is slow viser lowers it, and every edge would change.
        browser.open(f'{self.url.rstrip("/")}/?fixedDpr=1')
        self.until(lambda: 'gripper close' in browser.text and 'Home' in browser.text, 'the panel')

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


@pytest.fixture
def view(node_here, peer):
    """Return a viewer."""
    return View(peer, node_here(viewer.ViewerNode, 'view_port:=0'))


@pytest.fixture
def page(view, browser):
    """Return a viewer and its page in a browser."""
    view.open_in(browser)
    return view


def yellow(picture):
    """Return how many pixels have the colour of the arm."""
    red, green, blue = picture[..., 0], picture[..., 1], picture[..., 2]
    return int(((red > 150) & (green > 110) & (blue < 110)).sum())


def test_the_page_shows_the_arm_and_a_person_ends_the_episodes_of_a_training(
        page, peer, monkeypatch):
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
    poses = peer.talk('arm/pose')

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

    # A busy browser shows it late.
    monkeypatch.setattr(viewer, 'ANSWERED_S', 1e9)
    called = []

    def judge(_, response):
        called.append('success')
        response.message = 'the episode ends'
        return response

    service = peer.node.create_service(Confirm, 'robot/success', judge)
    page.until(lambda: 'Discard the episode' not in page.browser.text, 'no buttons yet')
    status = peer.talk('robot/status')
    page.until(lambda: 'Discard the episode' in page.browser.text, 'the buttons',
               say=lambda: status.publish(String(data='episode 7: the policy acts')))
    page.browser.click('Success')
    page.until(lambda: 'success: the episode ends' in page.browser.text, 'the answer')
    assert called == ['success']
    page.browser.click('Failure')
    page.until(lambda: 'failure: no training takes it' in page.browser.text, 'that nobody answers')
    # A training that does not answer holds up nothing.
    page.browser.click('EMERGENCY STOP')
    page.until(lambda: page.stops, 'the stop')
    peer.node.destroy_publisher(status)
    page.until(lambda: 'Discard the episode' not in page.browser.text, 'no buttons')
    peer.node.destroy_service(service)
    assert page.browser.errors() == []


def test_a_button_moves_its_motor_while_held_the_stop_latches_and_a_dead_browser_lets_go(
        page, peer):
    page.browser.press('shoulder down')
    page.until(lambda: sum(each.shoulder for each in page.motors) > 5, 'the commands')
    assert {(each.base, each.elbow, each.wrist, each.gripper, each.lamp)
            for each in page.motors} == {(0, 0, 0, 0, 0)}
    assert len({each.sender for each in page.motors}) == 1
    page.browser.let_go()
    page.until(lambda: page.last().shoulder == 0, 'motors off')
    page.browser.press('gripper close')
    page.until(lambda: page.last().gripper == -1, 'the gripper')
    count = len(page.motors)
    page.browser.let_go()
    page.until(lambda: page.last().gripper == 0, 'motors off')
    # No commands in between.
    assert all(each.shoulder == 0 for each in page.motors[count:])

    page.browser.click('EMERGENCY STOP')
    page.until(lambda: page.stops, 'the stop')
    assert page.stops[-1].sender == '/viewer'
    page.browser.key('e')
    page.until(lambda: len(page.stops) == 2, 'one by the key')
    engaged = EmergencyStopState(engaged=True, sender='/viewer')
    engaged.header.stamp.sec = 7
    page.stop_state.publish(engaged)
    page.until(lambda: 'Emergency stop by /viewer' in page.browser.text, 'who engaged it')
    page.until(lambda: 'all motors are off' in page.browser.text, 'the note')
    page.until(lambda: not page.browser.enabled('base left'), 'the buttons are disabled')
    page.until(lambda: not page.browser.enabled('Go'), 'it is disabled too')
    # A late subscriber receives it.
    late = peer.listen('arm/emergency_stop')
    page.until(lambda: late, 'the latched stop')
    page.browser.click('Release the emergency stop')
    page.until(lambda: page.releases, 'the release')
    assert page.releases[0].stop.sec == 7
    assert not page.browser.enabled('base left'), 'the driver has not released it'
    count = len(page.motors)
    page.stop_state.publish(EmergencyStopState(neutral_required=True))
    page.until(lambda: page.browser.enabled('base left'), 'the buttons work')
    page.until(lambda: len(page.motors) > count, 'a neutral command')
    assert page.last().base == 0

    page.browser.press('base left')
    page.until(lambda: page.last().base == 1, 'the command')
    page.browser.kill()
    page.until(lambda: page.last().base == 0, 'motors off')
    count = len(page.motors)
    begin = time.monotonic()
    page.until(lambda: time.monotonic() > begin + 1.0, 'a second')
    assert not any(each.base for each in page.motors[count:])


def test_a_viewer_that_stands_still_publishes_no_target_and_one_that_ends_no_motor(launch, peer):
    process = launch.node('viewer', 'view_port:=0')
    view = View(peer, process)
    targets, alive = map(peer.listen, ('arm/target', 'arm/viewer_alive'))
    status = peer.talk('arm/target_status')
    with page_client.PageClient(view.url) as page:
        page.send(page_client.CAMERA)
        page.read('EMERGENCY STOP', 'base left')
        messages = page_client.kinds(page.ids['base left'])

        def drag():
            for phase in ('DragStart', 'Update', 'DragEnd'):
                page.send(messages[f'TransformControls{phase}Message'])

        # Only while there is a policy.
        drag()
        count = len(alive)
        peer.until(lambda: len(alive) > count + 2, 'signs of life')
        assert not targets
        status.publish(TargetStatus(state='idle', target=[math.nan] * 3))
        peer.until(lambda: targets, 'a target', say=drag, every=0.1)
        point = targets[-1].point
        assert [point.x, point.y, point.z] == [0.1, 0.1, 0.2]
        assert targets[-1].header.frame_id == 'base_link'
        # What waited while the view stood still is not published.
        node = psutil.Process(process.process.pid)
        node.suspend()
        begin = time.monotonic()
        peer.until(lambda: time.monotonic() > begin + viewer.STANDSTILL_S + 0.5, 'the gap')
        count, seen = len(targets), len(alive)
        drag()
        node.resume()
        peer.until(lambda: len(alive) > seen + 2, 'signs of life')
        assert len(targets) == count
        peer.until(lambda: len(targets) > count, 'a target', say=drag, every=0.1)
        assert 'refused' not in process.output
        assert 'the view was held up for' in process.output

        def press():
            with contextlib.suppress(ConnectionClosed):
                page.send(messages['GuiButtonHoldMessage'])

        # So often that some presses are not handled yet at the end.
        with peer.saying(press, every=0.002):
            peer.until(lambda: view.last().base == 1, 'the command')
            process.interrupt()
            peer.until(lambda: process.process.poll() is not None, 'the end')
    peer.until(lambda: view.last().base == 0, 'motors off')


def test_nothing_of_before_a_pause_moves_the_arm_and_the_lamp_lets_go_of_no_button(
        view, monkeypatch):
    detector, passed = view.running.node._standstill, [0.0]
    clock = detector._clock
    monkeypatch.setattr(detector, '_clock', lambda: clock() + passed[0])
    with page_client.PageClient(view.url) as page:
        page.send(page_client.CAMERA)
        page.read('base left', 'lamp', 'Home')
        hold, states = page_client.kinds(page.ids['base left']), itertools.cycle((True, False))

        def press():
            page.send(hold['GuiButtonHoldMessage'])

        def switch():
            press()
            page.send({**page_client.kinds(page.ids['lamp'])['GuiUpdateMessage'],
                       'updates': {'value': next(states)}})

        view.until(lambda: any(each.lamp and each.base for each in view.motors),
                   'the lamp, and what is held', say=switch)
        # The second one is of a suspended machine, whose other clocks stand still.
        for pause in (0.5, 600.0):
            view.until(lambda: view.last().base == 1, 'the command', say=press)
            count = len(view.motors)
            passed[0] += pause
            view.until(lambda count=count: not all(each.base for each in view.motors[count:]),
                       'motors off', say=press)
        monkeypatch.setattr(StandstillDetector, 'is_input_old', True)
        view.until(lambda: 'Go was ignored' in view.running.output, 'a line',
                   say=lambda: page.press('Home'), every=0.2)


def test_a_release_is_of_the_stop_that_was_seen(view, monkeypatch):
    node = view.running.node
    # However slow the machine is.
    monkeypatch.setattr(StandstillDetector, 'is_input_old', False)

    def show(second):
        state = EmergencyStopState(engaged=True)
        state.header.stamp.sec = second
        view.stop_state.publish(state)
        view.until(lambda: node._stop_state and node._stop_state.header.stamp.sec == second, 'it')

    show(7)
    with page_client.PageClient(view.url) as page:
        page.send(page_client.CAMERA)
        page.read('Release the emergency stop')
        # The click waits until another stop is known.
        with monkeypatch.context() as patch:
            patch.setattr(node, '_handle_events', lambda: None)
            page.press('Release the emergency stop')
            view.until(lambda: not node._panel._events.empty(), 'the click')
            show(8)
        view.until(lambda: view.releases, 'the release')
        assert view.releases[0].stop.sec == 7
        monkeypatch.setattr(StandstillDetector, 'is_input_old', True)
        page.press('Release the emergency stop')
        view.until(lambda: 'Release was ignored' in view.running.output, 'a line')
    assert len(view.releases) == 1


def test_go_and_home_send_trajectories_within_motor_speed(view):
    with page_client.PageClient(view.url) as page:
        page.send(page_client.CAMERA)
        page.read('Go', 'Home')
        # An invalid description is refused, and the arm stays.
        view.describe('<robot')
        view.until(lambda: 'robot_description refused: ' in view.running.output, 'the reason')

        def go(label):
            view.pose(0.5, 0.0, 0.0, 0.0, 0.0)
            page.press(label)

        # Sliders follow the arm.
        view.until(lambda: view.goals and abs(view.goals[-1].points[0].positions[0] - 0.5) < 0.01,
                   'a trajectory', say=lambda: go('Go'), every=0.2)
        goal = view.goals[-1]
        assert list(goal.joint_names) == list(JOINTS)
        assert list(goal.points[0].positions) == pytest.approx([0.5, 0, 0, 0, 0], abs=0.01)
        view.until(lambda: not any(view.goals[-1].points[0].positions), 'the way home',
                   say=lambda: go('Home'), every=0.2)
        # 0.5 rad at 0.349 rad/s.
        assert seconds(view.goals[-1].points[0].time_from_start) > 1.43


def test_buttons_of_episodes_work_while_there_is_a_recorder(view, peer):
    called = []

    def serve(name):
        def on_call(_, response):
            called.append(name)
            return response
        return peer.node.create_service(Trigger, f'record_episodes/{name}', on_call)

    labels = {'start': 'Start episode', 'success': 'Save as success',
              'failure': 'Save as failure', 'discard': 'Discard'}
    serve('start')
    with page_client.PageClient(view.url) as page:
        page.send(page_client.CAMERA)
        page.read(*labels.values())
        # Not before all of its services are found.
        view.until(lambda: 'Start episode was ignored' in view.running.output, 'a line',
                   say=lambda: page.press('Start episode'), every=0.2)
        for name in labels:
            if name != 'start':
                serve(name)
        assert called == []
        for name, label in labels.items():
            view.until(lambda name=name: name in called, label,
                       say=lambda label=label: page.press(label), every=0.5)
    assert list(dict.fromkeys(called)) == list(labels)


class Silent:
    """A client of a service that does not answer."""

    def __init__(self):
        self.pending = []

    def service_is_ready(self):
        return True

    def call_async(self, request):
        self.pending.append(Future())
        return self.pending[-1]

    def remove_pending_request(self, future):
        self.pending.remove(future)


def test_one_verdict_at_a_time_waits_for_its_answer_and_not_for_ever():
    silent = Silent()
    verdicts = viewer.Verdicts(dict.fromkeys(('success', 'failure'), silent))
    for now in (0.0, 0.1, 0.2):
        verdicts.ask('success', now)
        verdicts.ask('failure', now)
    assert verdicts.text(0.3) == 'success: no answer yet'
    assert len(silent.pending) == 1
    verdicts.ask('failure', viewer.ANSWERED_S + 0.1)
    assert len(silent.pending) == 1
    assert verdicts.text(viewer.ANSWERED_S + 0.2) == 'failure: no answer yet'
    assert verdicts.text(2 * viewer.ANSWERED_S + 0.2) == ''
    assert silent.pending == []


def test_images_are_shown_and_invalid_ones_refused(view, peer):
    images = peer.talk('camera/image_raw')
    with page_client.PageClient(view.url) as page:
        page.send(page_client.CAMERA)
        page.read('EMERGENCY STOP')
        view.until(lambda: 'image refused: ' in view.running.output, 'a line',
                   say=lambda: images.publish(Image(width=2**31, height=2**31, step=1)))
        with peer.saying(lambda: images.publish(GREEN)):
            while not any('GuiImageMessage' in str(each) for each in page.receive_decoded()):
                pass


def test_used_port_is_refused_and_public_address_gives_a_warning(refused, node_here):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        assert refused(viewer.main, f'view_port:={port}') == (
            f'viewer: view: 127.0.0.1:{port} cannot be used: Address already in use; view_port:=0 '
            'selects a free port')
    running = node_here(viewer.ViewerNode, 'view_port:=0', 'view_host:=0.0.0.0')
    assert 'everyone who can reach this address can move' in running.output
