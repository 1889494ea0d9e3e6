"""Benchmarks that really run, as short as they can."""

import json
import subprocess

import psutil
import pytest

from benchmarks.peers import peers

pytestmark = [pytest.mark.slow, pytest.mark.process]

ONE_ROUND = ('--env', 'CartPole-v1', '--rounds', '1')


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a benchmark, which prints a table, and returns its object."""
    def to_end(name, *words):
        done = subprocess.run(
            ['ros2', 'run', 'vdl_ros', name, *words, '--output', 'out.json'],
            cwd=tmp_path, capture_output=True, text=True, check=True)
        assert '\n|---|' in done.stdout
        assert [path.name for path in tmp_path.iterdir()] == ['out.json']
        return json.loads((tmp_path / 'out.json').read_text())
    return to_end


def test_bench_train(run):
    found = run('bench_train', *ONE_ROUND, '--num-actors', '1', '--num-envs', '4',
                '--seconds', '0.5')
    assert (found['env'], found['num_actors'], found['num_envs']) == ('CartPole-v1', 1, 4)
    times = [found[f't_{part}_us'] for part in ('step', 'infer', 'learn')]
    assert all(time > 0 for time in times)
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    # 4 float32, int64 action, float32 reward and log-probability, 3 bools; at random one step in
    # ten or so resets, and the observation after the last is there as well.
    assert 35 < found['wire_bytes_per_step_in'] < 60
    assert found['wire_bytes_per_step_out'] > found['parameters'] * 4 / 1000
    assert set(found['processes']) == {'launch', 'learner', 'actor_0', 'serial'}
    assert all(each['memory_mb'] > 10 for each in found['processes'].values())
    busy = {}
    for process, threads in found['time_shares'].items():
        for thread, shares in threads.items():
            assert sum(shares.values()) == pytest.approx(1.0, abs=0.02), (process, thread)
            busy[process, thread] = {phase for phase, share in shares.items() if share > 0}
    assert busy['actor_0', 'acting'] >= {'step', 'infer', 'encode', 'publish', 'receive', 'wait'}
    assert busy['learner', 'training'] >= {'decode', 'learn', 'encode', 'publish', 'wait'}
    assert busy['learner', 'callbacks'] >= {'receive', 'wait'}
    assert busy['serial', 'training'] >= {'step', 'infer', 'encode', 'decode', 'learn'}


def test_bench_actor_learner(run):
    found = run('bench_actor_learner', *ONE_ROUND, '--inference', 'learner', '--seconds', '0.3')
    assert found['problems'] == {}
    cell = found['environments']['CartPole-v1']['cell']
    assert set(cell) == {'serial', 'learner'}
    assert cell['learner']['ratio'] > 0


def test_bench_env(run):
    found = run('bench_env', '--env', 'CartPole-v1', 'dummy/OBS1000-v0', '--num-envs', '2',
                '--seconds', '0.02', '--rounds', '1')
    assert [each['name'] for each in found['rows']] == ['CartPole-v1', 'dummy/OBS1000-v0']
    for each in found['rows']:
        assert set(each['frames_per_s']) == {'sync', 'async', 'own', 'actors'}
        assert all(speed > 0 for speed in each['frames_per_s'].values())


def test_bench_transport_counts_every_packet(run):
    report = run('bench_transport', '--sizes', '8000', '--rounds', '1', '--packets', '100',
                 '--round-trips', '100', '--trips', '10')
    assert report['transport']['one host'].startswith(('shm', 'udp'))
    counted = {(row['task'], row['way']): (row['asked'], row['received'], row['lost'])
               for row in report['rows']}
    assert counted == {(task, way): (count, count, 0) for way in ('tcp', 'dds')
                       for task, count in (('throughput', 100), ('round_trip', 10))}


PEER = """
import json, time
for update in range(200):
    # Ten steps/s at first, then a hundred.
    now = update if update < 3 else 3 + (update - 3) * 0.1
    print(json.dumps({'wall_s': now, 'agent_steps': update * 10, 'mean_return': update}),
          flush=True)
time.sleep(600)
"""


def test_a_peer_is_installed_from_its_commit_measured_and_ended(tmp_path):
    origin = tmp_path / 'origin'
    git = ['git', '-C', origin, '-c', 'user.name=name', '-c', 'user.email=name@host']
    subprocess.run(['git', 'init', '--quiet', origin], check=True)
    for text in (PEER, "raise SystemExit('no such game')"):
        (origin / 'worker.py').write_text(text)
        subprocess.run([*git, 'add', 'worker.py'], check=True)
        subprocess.run([*git, 'commit', '--quiet', '-m', 'A worker'], check=True)
    first = subprocess.run([*git, 'rev-parse', 'HEAD~1'], check=True, capture_output=True,
                           text=True).stdout.strip()
    peer = peers.Peer('Scripts', ('PPO', 'PPO'), (), tmp_path / 'peer' / 'clone' / 'worker.py',
                      (str(origin), first))
    python = peers.install(peer.requirements, tmp_path / 'peer', peer.clone)
    (tmp_path / 'peer' / 'kept').touch()
    assert peers.install(peer.requirements, tmp_path / 'peer', peer.clone) == python
    assert (tmp_path / 'peer' / 'kept').exists(), 'it is installed once'
    speed, memory = peers.run_peer(peer, python, 'ALE/Pong-v5', warm_up=5.0, seconds=10.0)
    assert speed == pytest.approx(100.0)
    # MB of a Python that imports nothing else.
    assert 2 < memory < 50
    assert not [each for each in psutil.process_iter(['cmdline'])
                if str(peer.worker) in (each.info['cmdline'] or ())]
    (origin / 'one.py').touch()
    above = peers.install([], tmp_path / 'above', beneath=[str(origin)])
    subprocess.run([above, '-c', 'import one'], check=True)
    with pytest.raises(RuntimeError, match=r'no\.whl'):
        peers.install([str(tmp_path / 'no.whl')], tmp_path / 'wrong')
    peer.worker.write_text((origin / 'worker.py').read_text())
    with pytest.raises(RuntimeError, match='no such game'):
        peers.run_peer(peer, python, 'ALE/Pong-v5', warm_up=1.0, seconds=1.0)
