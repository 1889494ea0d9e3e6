"""bench_peers: environments of peers, their reports, and the table."""

import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import bench_peers
from benchmarks.peers import peers

WORKER = """
import json, sys, time
print('not a report', json.dumps(sys.argv[1:]), flush=True)
for update in range(200):
    # Ten steps/s at first, then a hundred.
    now = update if update < 3 else 3 + (update - 3) * 0.1
    print(json.dumps({'wall_s': now, 'agent_steps': update * 10}), flush=True)
time.sleep(600)
"""


def worker(folder, text):
    path = folder / 'worker.py'
    path.write_text(text)
    return peers.Peer('Another System 1.0', (), path)


def test_what_is_no_whole_report_is_skipped():
    text = ('A.L.E\n{"wall_s": 1.5, "agent_steps": 640}\n{"wall_s": 2}\n[1]\n3\n'
            '{"wall_s": 2.5, "agent_steps": 1280}\n{"wall_s": 3.5, "agen')
    assert peers.rows(text) == [(1.5, 640.0), (2.5, 1280.0)]


def test_the_speed_of_a_peer_is_without_warm_up_and_its_process_is_ended(tmp_path):
    peer = worker(tmp_path, WORKER)
    speed, memory = peers.run_peer(
        peer, Path(sys.executable), 'ALE/Pong-v5', warm_up=5.0, seconds=10.0)
    assert speed == pytest.approx(100.0)
    # MB of a Python that imports nothing else.
    assert 2 < memory < 50
    assert not [each for each in psutil.process_iter(['cmdline'])
                if str(peer.worker) in (each.info['cmdline'] or ())]


def test_a_peer_that_ends_is_an_error_with_its_last_lines(tmp_path):
    peer = worker(tmp_path, "raise SystemExit('no such game')")
    with pytest.raises(RuntimeError, match='no such game'):
        peers.run_peer(peer, Path(sys.executable), 'ALE/Pong-v5', warm_up=1.0, seconds=1.0)


def test_a_peer_is_installed_once_into_an_environment_of_its_own(tmp_path):
    peer = worker(tmp_path, '')
    python = peers.install(peer, tmp_path / 'peer')
    assert python.is_relative_to(tmp_path)
    assert python.exists()
    (tmp_path / 'peer' / 'kept').touch()
    assert peers.install(peer, tmp_path / 'peer') == python
    assert (tmp_path / 'peer' / 'kept').exists()


def test_what_cannot_be_installed_is_an_error_of_pip(tmp_path):
    peer = peers.Peer('Missing', (str(tmp_path / 'no-such-wheel.whl'),), tmp_path)
    with pytest.raises(RuntimeError, match=r'no-such-wheel\.whl'):
        peers.install(peer, tmp_path / 'peer')
    assert not (tmp_path / 'peer' / 'requirements.txt').exists()


def test_the_table_has_medians_and_how_much_faster_the_graph_is():
    text = bench_peers.markdown({
        'env': 'ALE/Pong-v5', 'rounds': 3, 'seconds': 40.0, 'cores': 2,
        'steps_per_s': {'graph': [1000.0, 900.0, 1100.0],
                        'sample_factory': [500.0, 400.0, 510.0]},
        'memory_mb': {'graph': [1500.0, 1600.0, 1550.0], 'sample_factory': [900.0] * 3}})
    assert '| vdl_ros, impala, two actors | 1,000 (900 to 1,100) | 1.0 | 1,600 |' in text
    assert '| Sample Factory 2.1.1, APPO | 500 (400 to 510) | 2.0 | 900 |' in text


@pytest.mark.parametrize(('words', 'expected'), [
    (['--env', 'CartPole-v1'], "--env: 'CartPole-v1' is not allowed: an Atari game, ALE/..."),
    (['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000')])
def test_bad_options_are_one_line(words, expected):
    with pytest.raises(ValueError, match='is not allowed') as error:
        bench_peers.arguments(words)
    assert str(error.value) == expected
