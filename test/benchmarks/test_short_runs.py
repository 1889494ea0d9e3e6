"""Benchmarks that really run, as short as they can: what they print, and what cannot run."""

import argparse
import contextlib
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import bench_env, bench_exchange, bench_lag
from benchmarks.peers import peers
from benchmarks.peers import runs as peer_runs
from benchmarks.scaling import learners
from benchmarks.scaling import runs as scaling
from benchmarks.scaling import table as scaling_table
from benchmarks.train import runs
from benchmarks.transport import peers as transport_peers
from vdl_ros.common.thread_timer import PHASES

pytestmark = pytest.mark.slow

ONE_ROUND = ('--env', 'CartPole-v1', '--rounds', '1')


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a benchmark and returns the only object that it prints."""
    def to_end(name, *words):
        done = subprocess.run(
            ['ros2', 'run', 'vdl_ros', name, *words, '--json', '--output', 'out.json'],
            cwd=tmp_path, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        assert json.loads((tmp_path / 'out.json').read_text()) == found
        assert [path.name for path in tmp_path.iterdir()] == ['out.json']
        return found
    return to_end


def test_bench_train(run):
    found = run('bench_train', *ONE_ROUND, '--num-actors', '1', '--num-envs', '4',
                '--seconds', '0.5')
    assert (found['env'], found['num_actors'], found['num_envs']) == ('CartPole-v1', 1, 4)
    times = [found[f't_{part}_us'] for part in ('step', 'infer', 'learn')]
    assert all(time > 0 for time in times)
    assert found['roofline_steps_per_s'] == pytest.approx(found['cores'] * 1e6 / sum(times))
    assert found['efficiency'] == pytest.approx(
        found['steps_per_s'] / found['roofline_steps_per_s'])
    assert found['serial_ratio'] == pytest.approx(
        found['steps_per_s'] / found['serial_steps_per_s'])
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    assert 0 <= found['policy_lag']['mean'] <= found['policy_lag']['max'] <= 4
    # 4 float32, int64 action, float32 reward and log-probability, 3 bools; at random one step in
    # ten or so resets, and the observation after the last is there as well.
    assert 35 < found['wire_bytes_per_step_in'] < 60
    assert found['wire_bytes_per_step_out'] > found['parameters'] * 4 / 1000
    assert set(found['processes']) == {'launch', 'learner', 'actor_0', 'serial'}
    assert all(each['memory_mb'] > 10 for each in found['processes'].values())
    threads = {(process, thread): shares for process, each in found['time_shares'].items()
               for thread, shares in each.items()}
    busy = {}
    for name, shares in threads.items():
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.02), name
        assert set(shares) <= set(PHASES)
        busy[name] = {phase for phase, share in shares.items() if share > 0}
    assert set(busy) == {('learner', 'training'), ('learner', 'callbacks'),
                         ('actor_0', 'acting'), ('serial', 'training')}
    assert busy['actor_0', 'acting'] >= {'step', 'infer', 'encode', 'publish', 'receive', 'wait'}
    assert busy['learner', 'training'] >= {'decode', 'learn', 'encode', 'publish', 'wait'}
    assert busy['learner', 'callbacks'] >= {'receive', 'wait'}
    assert busy['serial', 'training'] >= {'step', 'infer', 'encode', 'decode', 'learn'}


def test_bench_actor_learner(run):
    found = run('bench_actor_learner', *ONE_ROUND, '--only', 'table', '--inference', 'learner',
                '--seconds', '0.3', '--warm-up', '0')
    assert (found['problems'], found['break_even']) == ({}, [])
    each = found['environments']['CartPole-v1']
    serial, central = each['cell']['serial'], each['cell']['learner']
    assert central['ratio'] == pytest.approx(central['steps_per_s'] / serial['steps_per_s'])
    assert each['seconds']['serial'] / each['seconds']['learner'] == pytest.approx(
        central['ratio'])
    assert central['trajectories_lost'] == central['trajectories_rejected'] == 0
    # 16 bytes of observation one way, 8 of the action the other to both actors, flags, reward.
    assert 35 < central['wire_bytes_per_step'] < 80
    assert set(serial['time']) == {'serial'}
    assert set(central['time']) == {'actor', 'learner'}
    assert all(central['time'][kind][part] > 0 for kind in central['time']
               for part in ('computation', 'communication'))


def test_bench_env(run):
    found = run('bench_env', '--env', 'CartPole-v1', 'dummy/OBS1000-v0', '--num-envs', '2',
                '--seconds', '0.02', '--rounds', '1')
    assert [each['name'] for each in found['rows']] == ['CartPole-v1', 'dummy/OBS1000-v0']
    for each, size in zip(found['rows'], (16, 1000), strict=True):
        assert each['observation_bytes'] == size
        assert set(each['vectorised']) == {'sync', 'async', 'own', 'actors'}
        assert each['best'] in each['vectorised']
        for figures in (each['single'], *each['vectorised'].values()):
            assert figures['frames_per_s'] > 0
            assert figures['memory_bytes'] >= 0


def test_bench_transport_counts_every_packet(run):
    ways = ('tcp', 'tcp-kept', 'dds-events', 'dds-serialized')
    report = run('bench_transport', '--ways', ','.join(ways), '--clients', '1', '--sizes', '8000',
                 '--rounds', '1', '--packets', '100', '--round-trips', '100', '--trips', '10')
    assert report['transport']['one host'].startswith(('shm', 'udp'))
    counted = {(row['task'], row['way']): (row['asked'], row['sent'], row['received'], row['lost'])
               for row in report['rows']}
    assert counted == {(task, way): (count, count, count, 0) for way in ways
                       for task, count in (('throughput', 100), ('round_trip', 10))}
    for row in report['rows']:
        if row['task'] == 'throughput':
            assert row['MBps'] == pytest.approx(row['packets_per_s'] * 8000 / 1e6)
            assert row['MBps'] == pytest.approx(row['MBps_each'])
        else:
            assert 0.0 < row['p50_ms'] <= row['p99_ms']


def test_bench_exchange_of_two_learners(run):
    found = run('bench_exchange', '--learners', '2', '--periods', '1', '--batches', '1')
    assert [row['kilobytes'] for row in found['rows']] == [10, 300, 2500, 9200]
    # A learner sleeps at least as long as its batches take.
    assert all(0 < row['speedups']['1'] <= 2 for row in found['rows'])
    head, _, first, *_ = bench_exchange.markdown(found).splitlines()
    assert head == '| a sum, kB | a batch, s | every 1: speed-up | VDL, 6 machines |'
    assert first.startswith('| 10 | 0.07 | ')
    assert first.endswith(' | 5.93 |')


def test_bench_scaling_with_two_samplers():
    made, _ = scaling.plan(scaling.SAMPLERS, scaling.SAMPLERS.sleeping, 800, 0.5)
    with contextlib.closing(runs.Listener()) as listener:
        found = runs.run_graph(dataclasses.replace(made, num_actors=2), listener)
        assert listener.delivering() == 2
    assert set(found['time_shares']) == {'learner', 'actor_0', 'actor_1'}
    row = scaling_table.sampler_row(2, [found], 800, 'asleep')
    assert row['trajectories_lost'] == 0
    assert 0 < row['collection_s'] <= 1.02 * row['iteration_s']
    assert 0 < row['learning_s'] <= 1.02 * row['iteration_s']
    # An update takes twenty trajectories.
    assert found['summary']['updates'] * 20 <= found['summary']['trajectories_received']


def test_bench_scaling_with_two_learners():
    one, settings = scaling.plan(scaling.LEARNERS, 'dummy/OBS8-FPS200-v0', 800, 0.5, 1)
    with contextlib.closing(runs.Listener()) as listener:
        found = runs.run_graph(scaling.Cell(scaling.LEARNERS, 2).plan(one), listener)
    nodes = {'learner_0', 'learner_1', 'actor_0', 'actor_1'}
    assert set(found['time_shares']) == nodes
    assert set(found['processes']) == nodes | {'launch'}
    row = learners.learner_row(2, 2, [found], 'asleep')
    summary = found['summary']
    assert (summary['learners'], summary['learner_restarts']) == (2, 0)
    assert row['trajectories_lost'] == 0
    # An update takes two trajectories of each learner, and one step in 1001 is a reset.
    most = 2 * settings['batch_size'] * settings['num_envs'] * settings['unroll_length']
    assert 0.998 * most < summary['agent_steps'] / summary['updates'] <= most
    assert row['steps_per_s'] / row['updates_per_s'] == pytest.approx(
        summary['agent_steps'] / summary['updates'])
    assert 0 < row['learner_learns'] < 1 - row['learner_waits'] < 1


def test_bench_lag_trains_from_the_given_policy(tmp_path):
    options = argparse.Namespace(init=None, runs=tmp_path, steps=64, delays=[0, 40],
                                 as_they_are=False)
    options.init = bench_lag.train('cartpole', bench_lag.NAIVE, 1, options)
    config = (bench_lag.train('cartpole', '40', 1, options).parent / 'config.yaml').read_text()
    assert f'init: {options.init}' in config
    assert 'action_delay: 0.04' in config


def test_what_cannot_run_is_one_line():
    plan = runs.Plan({'env_id': 'Nowhere-v0'}, {}, 1, 0.1, 0.5)
    with pytest.raises(RuntimeError, match="no environment 'Nowhere-v0'"):
        runs.run_serial(plan)
    with pytest.raises(RuntimeError, match=r"^step: .*no environment 'Nowhere-v0'"):
        runs.run_part('step', plan, {'env_id': 'Nowhere-v0'})
    assert bench_env.run('Nothing-v1', 'sync', 1, 0.01) == {
        'error': "--env: no environment 'Nothing-v1'"}
    hosts = transport_peers.Hosts('nowhere', 'no.such.host.invalid', 'LOCALHOST')
    with pytest.raises(transport_peers.PeerError, match='^tcp server 0: ') as failed:
        transport_peers.Team('tcp', hosts, 1)
    assert '\n' not in str(failed.value)


PEER = """
import json, sys, time
print('not a report', json.dumps(sys.argv[1:]), flush=True)
for update in range(200):
    # Ten steps/s at first, then a hundred.
    now = update if update < 3 else 3 + (update - 3) * 0.1
    print(json.dumps({'wall_s': now, 'agent_steps': update * 10, 'mean_return': update}),
          flush=True)
time.sleep(600)
"""


def test_a_peer_is_measured_and_its_process_ended(tmp_path):
    peer = peers.Peer('Another System 1.0', ('A2C', 'PPO'), (), tmp_path / 'worker.py')
    peer.worker.write_text(PEER)
    speed, memory = peer_runs.run_peer(
        peer, Path(sys.executable), 'ALE/Pong-v5', warm_up=5.0, seconds=10.0)
    assert speed == pytest.approx(100.0)
    # MB of a Python that imports nothing else.
    assert 2 < memory < 50
    words = peer_runs.command(peer, Path(sys.executable), 'CartPole-v1', 1)
    assert peer_runs.until_return(
        words, peer_runs.rows, mean_return=120.0, limit=600.0)[1] == 1200.0
    assert not [each for each in psutil.process_iter(['cmdline'])
                if str(peer.worker) in (each.info['cmdline'] or ())]
    peer.worker.write_text("raise SystemExit('no such game')")
    with pytest.raises(RuntimeError, match='no such game'):
        peer_runs.run_peer(peer, Path(sys.executable), 'ALE/Pong-v5', warm_up=1.0, seconds=1.0)


def test_a_peer_is_installed_by_pip_and_cloned_at_its_commit(tmp_path):
    git = ['git', '-c', 'user.name=name', '-c', 'user.email=name@host', '-C', tmp_path / 'origin']
    subprocess.run(['git', 'init', '--quiet', tmp_path / 'origin'], check=True)
    for text in ('one', 'two'):
        (tmp_path / 'origin' / 'script.py').write_text(text)
        subprocess.run([*git, 'add', 'script.py'], check=True)
        subprocess.run([*git, 'commit', '--quiet', '-m', text], check=True)
    first = subprocess.run([*git, 'rev-parse', 'HEAD~1'], check=True, capture_output=True,
                           text=True).stdout.strip()
    peer = peers.Peer('Scripts', ('PPO', 'PPO'), (), tmp_path,
                      peers.Clone(str(tmp_path / 'origin'), first))
    assert peers.install(peer, tmp_path / 'peer').exists()
    assert (tmp_path / 'peer' / 'clone' / 'script.py').read_text() == 'one'
    peer = peers.Peer('Missing', ('A2C', 'PPO'), (str(tmp_path / 'no-such-wheel.whl'),), tmp_path)
    with pytest.raises(RuntimeError, match=r'no-such-wheel\.whl'):
        peers.install(peer, tmp_path / 'peer')
