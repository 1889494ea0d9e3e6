"""The view of a training shows what its nodes report, and costs nothing without a browser."""

import re
import socket
from unittest.mock import Mock

import page_client
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from sensor_msgs.msg import Image
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.msg import Policy
from vdl_ros.nodes import training_viewer
from vdl_ros.ros import base_node, qos

IMAGES = 'policy/image_raw'
GREY = Image(width=8, height=4, step=24, encoding='rgb8', data=bytes([90] * 96))


def scalar(tag, value, node='/learner'):
    return MetricsMessage(
        measurement_source_name=node, metrics_source=f'scalar_{tag}', unit='scalar',
        statistics=[StatisticDataPoint(
            data_type=StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE, data=float(value))])


def health(name, sentence='', warning=''):
    level = DiagnosticStatus.WARN if warning else DiagnosticStatus.OK
    return DiagnosticArray(status=[DiagnosticStatus(
        name=name, level=level, message=warning or 'ok',
        values=[KeyValue(key='bottleneck', value=sentence)] if sentence else [])])


def reader(page):
    """Return a function: receive more, and return whether a text has been received."""
    received = []

    def has(text):
        received.extend(map(str, page.receive_decoded()))
        return any(text in each for each in received)

    return has


def test_what_nodes_report_is_shown(node_here, peer):
    running = node_here(training_viewer.TrainingViewerNode, 'view_port:=0')
    address = peer.until(lambda: re.search(
        r'view of the training: (http://\S+)', running.output), 'the address')[1]
    statistics, diagnostics, policies = map(peer.talk, ('/statistics', '/diagnostics', 'policy'))
    images = qos.pub(peer.node, IMAGES)
    policies.publish(Policy(config='{"env_id": ["nested"]}'))
    peer.until(lambda: 'policy refused' in running.output, 'the refusal')
    policies.publish(Policy(config='{"env_id": "CartPole-v1", "algorithm": "impala"}'))
    sentence, rates = ['the learner waits'], iter(range(10, 10**6))

    def report():
        statistics.publish(scalar('agent_steps', next(rates) * 1000))
        statistics.publish(scalar('charts/SPS', next(rates)))
        statistics.publish(scalar('charts/episodic_length', 77, node='/other/learner'))
        diagnostics.publish(health('/learner', sentence[0]))
        diagnostics.publish(health('/policy_renderer', warning='no driver'))

    assert images.get_subscription_count() == 0, 'nobody watches'
    with page_client.PageClient(address) as page, peer.saying(report):
        page.send(page_client.CAMERA)
        has = reader(page)
        for text in ('CartPole-v1 · impala', 'steps per second | ', 'the learner waits',
                     'No images of the policy: no driver', 'GuiUplotMessage'):
            while not has(text):
                pass
        sentence[0] = 'actors wait'
        while not has('**Bottleneck:** actors wait'):
            pass
        peer.until(images.get_subscription_count, 'a subscription, while somebody watches')
        # Refused, and the next one is shown.
        peer.until(lambda: 'policy/image_raw refused: image: ' in running.output, 'the refusal',
                   say=lambda: images.publish(Image(width=8, height=4, step=1)), every=0.1)
        with peer.saying(lambda: images.publish(GREY)):
            while not has('/policy'):
                pass
        assert not has('episode length'), 'of another namespace'
    peer.until(lambda: images.get_subscription_count() == 0, 'nobody watches any more')
    assert peer.node.count_subscribers('policy') == 0, 'large, and taken once'


def test_training_comes_first_and_a_port_in_use_ends_it_with_one_line(refused, monkeypatch):
    lowered = Mock()
    monkeypatch.setattr(base_node, 'lower_priority', lowered)
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(training_viewer.main, f'view_port:={port}')
    assert f'view: 127.0.0.1:{port} cannot be used' in line
    assert 'view_port:=0' in line
    lowered.assert_called_once_with()
