"""The black box: an incident leaves a bag, with what a policy decided."""

import reach_checkpoint
from rclpy.qos import QoSProfile

from vdl_ros.bags.reader import BagReader
from vdl_ros.nodes.black_box import BlackBoxNode
from vdl_ros.nodes.play import PlayNode
from vdl_ros.nodes.sim_arm import SimArmNode
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.robots.task import task_of
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import stop_request
from vdl_ros.ros.bags.black_box import BlackBox, LastMessages
from vdl_ros.tools import replay_policy


def test_a_stop_leaves_a_bag_whose_decisions_are_computed_again(
        node_here, peer, tmp_path):
    node_here(SimArmNode, 'publish_clock:=true', 'real_time_factor:=4.0')
    contract = find_contract('owi535_sim')
    same, other = (reach_checkpoint.write(
        tmp_path / f'{name}.pt', env_id=contract.env_id, lstm_size=4, seed=seed,
        described=task_of(contract).description(contract))
        for name, seed in (('same', 1), ('other', 2)))
    box = node_here(BlackBoxNode, f'black_box:={tmp_path / "bags"}')
    decisions = peer.listen('decisions')
    peer.until(lambda: peer.node.get_subscriptions_info_by_topic('/arm/motors_sent'), 'the box')
    node_here(PlayNode, 'robot:=owi535_sim', f'policy:={same}')
    peer.until(lambda: len(decisions) > 20, 'decisions')
    stop = peer.talk('arm/emergency_stop')
    peer.until(lambda: 'black box: ' in box.output, 'the bag', every=0.5,
               say=lambda: stop.publish(stop_request('/person', 'a test')))
    bag, = (tmp_path / 'bags').iterdir()
    assert "emergency stop by '/person'" in box.output
    assert replay_policy.main([str(bag), '--policy', str(same)]) == 0
    assert f'decisions for robot/owi535_sim by {same}: all equal' in box.output
    assert replay_policy.main([str(bag), '--policy', str(other)]) == 1
    assert ' by the policy; ages of its inputs: arm/joint_states 0.' in box.output
    assert replay_policy.main([str(bag), '--policy', str(tmp_path)]) == 2


def test_the_last_messages_are_bounded_in_time_and_bytes_latched_ones_in_bytes(tmp_path):
    messages, bags = LastMessages(), {}
    state, talk, *others = (
        messages.add_topic(name, 'std_msgs/msg/String', [profile]) for name, profile in (
            ('/state', qos.LATCHED), ('/talk', QoSProfile(depth=1)),
            *((f'/map{number}', qos.LATCHED) for number in range(20))))
    messages.write(state, 10**9, b'state')
    for second in range(1, 100):
        messages.write(talk, second * 10**9, b'%d' % second)
    messages.save(tmp_path / 'old', 'old')
    for each in others:
        messages.write(each, 100 * 10**9, bytes(8 << 20))
    messages.write(talk, 100 * 10**9, bytes(100 << 20))  # which would take the place of all
    messages.save(tmp_path / 'large', 'large')
    for name in ('old', 'large'):
        bags[name] = [each.data for each in BagReader(tmp_path / name)]
        assert bags[name][0] == b'state'
    assert bags['old'][1:] == [b'%d' % second for second in range(69, 100)]
    assert 40 << 20 < sum(len(each) for each in bags['large']) <= 64 << 20


def test_incidents_of_one_kind_make_one_bag_and_old_bags_go(tmp_path, monkeypatch):
    now, saved, told = [0.0], [], []

    def save(path, reason):
        path.mkdir()
        saved.append(reason)
        return 1

    (tmp_path / 'mine').mkdir()  # of somebody else
    box = BlackBox(tmp_path, save, told.append, clock=lambda: now[0])
    for now[0], reason in (
            (0.0, 'episode 1: late'), (0.5, 'stop'), (1.1, ''), (2.0, 'episode 2: late'),
            (4.0, ''), (601.0, 'episode 7: late'), (602.0, '')):
        if reason:
            box.on_incident(reason)
        box.look()
    assert saved == ['episode 1: late; stop', 'episode 7: late']
    box.on_incident('the end')
    box.look(ends=True)
    for number in range(30):
        now[0] += 600.0
        box.on_incident('x' * number)
        box.look(ends=True)
    assert len(list(tmp_path.iterdir())) == 21
    assert (tmp_path / 'mine').is_dir()


def test_no_flood_of_incidents_takes_the_place_of_earlier_bags(tmp_path):
    now, saved, told = [0.0], [], []

    def save(path, reason):
        path.mkdir()
        saved.append(reason)
        return 1

    box = BlackBox(tmp_path, save, told.append, clock=lambda: now[0])
    box.on_incident('lost', 'incidents')
    for number in range(250):
        now[0] += 2.0
        box.look()
        box.on_incident('x' * number, 'incidents')
    box.on_incident('stop')
    box.look(ends=True)
    assert saved == ['lost', '', 'x', 'xx', 'xxx', 'stop']
    # Once in ten minutes it says that there are more.
    assert [each for each in told if 'no bag' in each] == [
        'black box: no bag: more than 5 kinds of incidents in ten minutes (xxxx)']
