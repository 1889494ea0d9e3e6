"""bench_peers: environments of peers, their reports, and the table."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import bench_peers
from benchmarks.peers import peers, runs

WORKER = """
import json, sys, time
print('not a report', json.dumps(sys.argv[1:]), flush=True)
for update in range(200):
    # Ten steps/s at first, then a hundred.
    now = update if update < 3 else 3 + (update - 3) * 0.1
    print(json.dumps({'wall_s': now, 'agent_steps': update * 10, 'mean_return': None}), flush=True)
time.sleep(600)
"""
# Its mean return is that of 100 episodes from the second update on.
LEARNER = """
import json
for steps, mean in ((640, None), (1280, 470.0), (1920, 480.0), (2560, 500.0)):
    print(json.dumps({'wall_s': 1.0, 'agent_steps': steps, 'mean_return': mean}), flush=True)
"""


def worker(folder, text):
    path = folder / 'worker.py'
    path.write_text(text)
    return peers.Peer('Another System 1.0', ('A2C', 'PPO'), (), path)


def test_what_is_no_whole_report_is_skipped():
    text = ('A.L.E\n{"wall_s": 1.5, "agent_steps": 640, "mean_return": null}\n{"wall_s": 2}\n[1]\n'
            '3\n{"wall_s": 2.5, "agent_steps": 1280, "mean_return": 9.5}\n{"wall_s": 3.5, "agen')
    assert runs.rows(text) == [(1.5, 640.0, float('-inf')), (2.5, 1280.0, 9.5)]


def test_the_speed_of_a_peer_is_without_warm_up_and_its_process_is_ended(tmp_path):
    peer = worker(tmp_path, WORKER)
    speed, memory = runs.run_peer(
        peer, Path(sys.executable), 'ALE/Pong-v5', warm_up=5.0, seconds=10.0)
    assert speed == pytest.approx(100.0)
    # MB of a Python that imports nothing else.
    assert 2 < memory < 50
    assert not [each for each in psutil.process_iter(['cmdline'])
                if str(peer.worker) in (each.info['cmdline'] or ())]


def test_a_peer_that_ends_is_an_error_with_its_last_lines(tmp_path):
    peer = worker(tmp_path, "raise SystemExit('no such game')")
    with pytest.raises(RuntimeError, match='no such game'):
        runs.run_peer(peer, Path(sys.executable), 'ALE/Pong-v5', warm_up=1.0, seconds=1.0)


def test_a_peer_is_installed_once_into_an_environment_of_its_own(tmp_path):
    peer = worker(tmp_path, '')
    python = peers.install(peer, tmp_path / 'peer')
    assert python.is_relative_to(tmp_path)
    assert python.exists()
    (tmp_path / 'peer' / 'kept').touch()
    assert peers.install(peer, tmp_path / 'peer') == python
    assert (tmp_path / 'peer' / 'kept').exists()


def test_a_peer_without_a_package_is_cloned_at_its_commit(tmp_path):
    origin = tmp_path / 'origin'
    git = ['git', '-C', str(origin), '-c', 'user.name=name', '-c', 'user.email=name@host']
    subprocess.run(['git', 'init', '--quiet', str(origin)], check=True)
    for text in ('one', 'two'):
        (origin / 'script.py').write_text(text)
        subprocess.run([*git, 'add', 'script.py'], check=True)
        subprocess.run([*git, 'commit', '--quiet', '-m', text], check=True)
    first = subprocess.run([*git, 'rev-parse', 'HEAD~1'], check=True, capture_output=True,
                           text=True).stdout.strip()
    peer = peers.Peer('Scripts', ('PPO', 'PPO'), (), tmp_path, peers.Clone(str(origin), first))
    peers.install(peer, tmp_path / 'peer')
    assert (tmp_path / 'peer' / 'clone' / 'script.py').read_text() == 'one'


def test_a_host_without_git_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))
    peer = peers.Peer('Scripts', ('PPO', 'PPO'), (), tmp_path, peers.Clone('none', 'none'))
    with pytest.raises(RuntimeError, match='git: no such command'):
        peers.install(peer, tmp_path / 'peer')


def test_what_cannot_be_installed_is_an_error_of_pip(tmp_path):
    peer = peers.Peer('Missing', ('A2C', 'PPO'), (str(tmp_path / 'no-such-wheel.whl'),), tmp_path)
    with pytest.raises(RuntimeError, match=r'no-such-wheel\.whl'):
        peers.install(peer, tmp_path / 'peer')
    assert not (tmp_path / 'peer' / 'requirements.txt').exists()


@pytest.mark.parametrize(('text', 'limit', 'expected'), [
    (LEARNER, 60.0, 1920.0),
    (LEARNER + 'import time; time.sleep(600)', 60.0, 1920.0),
    (LEARNER.replace('480', '4').replace('500', '5'), 60.0, None),
    ('import time; time.sleep(600)', 0.3, None)],
    ids=['ends', 'goes on', 'does not reach it', 'takes too long'])
def test_a_training_is_timed_until_its_mean_return(tmp_path, text, limit, expected):
    peer = worker(tmp_path, text)
    words = runs.command(peer, Path(sys.executable), 'CartPole-v1', 1)
    found = runs.until_return(words, runs.rows, mean_return=475.0, limit=limit)
    assert (found[1] if found else None) == expected
    assert not [each for each in psutil.process_iter(['cmdline'])
                if str(peer.worker) in (each.info['cmdline'] or ())]


def test_a_training_that_fails_is_an_error_with_its_last_lines(tmp_path):
    words = runs.command(worker(tmp_path, "raise SystemExit('no such task')"),
                         Path(sys.executable), 'CartPole-v1', 1)
    with pytest.raises(RuntimeError, match='no such task'):
        runs.until_return(words, runs.rows, mean_return=475.0, limit=60.0)


def test_the_mean_of_fewer_than_100_episodes_of_the_graph_does_not_count(tmp_path):
    (tmp_path / 'progress.csv').write_text(
        'agent_steps,wall_s,mean_return_100,episodes\n640,0.5,nan,0\n1280,1.0,500.0,99\n'
        '1920,1.5,480.0,100\n2560,2.0,50')
    assert bench_peers.graph_rows(tmp_path) == [(1.5, 1920.0, 480.0)]
    assert bench_peers.graph_rows(tmp_path / 'none') == []


def test_the_table_of_cartpole_has_each_seed_and_what_was_not_solved():
    text = bench_peers.markdown({
        'env': 'CartPole-v1', 'rounds': 2, 'limit': 600.0, 'cores': 2,
        'seconds_until_solved': {'graph': [14.2, 15.0], 'cleanrl': [90.0, None]},
        'steps_until_solved': {'graph': [160000.0, 170000.0], 'cleanrl': [300000.0, None]}})
    assert '| vdl_ros, impala, two actors | 14, 15 | 160,000, 170,000 |' in text
    assert '| CleanRL fe8d8a0, PPO | 90, none | 300,000, none |' in text


def test_the_table_has_medians_and_how_much_faster_the_graph_is():
    text = bench_peers.markdown({
        'env': 'ALE/Pong-v5', 'rounds': 3, 'seconds': 40.0, 'cores': 2,
        'steps_per_s': {'graph': [1000.0, 900.0, 1100.0],
                        'sample_factory': [500.0, 400.0, 510.0]},
        'memory_mb': {'graph': [1500.0, 1600.0, 1550.0], 'sample_factory': [900.0] * 3}})
    assert '| vdl_ros, impala, two actors | 1,000 (900 to 1,100) | 1.0 | 1,600 |' in text
    assert '| Sample Factory 2.1.1, APPO | 500 (400 to 510) | 2.0 | 900 |' in text


@pytest.mark.parametrize(('words', 'expected'), [
    (['--env', 'Acrobot-v1'],
     "--env: 'Acrobot-v1' is not allowed: an Atari game, ALE/..., or CartPole-v1"),
    (['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000')])
def test_bad_options_are_one_line(words, expected):
    with pytest.raises(ValueError, match='is not allowed') as error:
        bench_peers.arguments(words)
    assert str(error.value) == expected
