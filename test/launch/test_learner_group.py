"""Several learners of one launch: one run, whichever of them dies; all end together."""

import signal
import socket

import pytest

pytestmark = pytest.mark.slow
LONG = ('total_steps:=100000000', 'stop_at_return:=1e9', 'checkpoint_period:=1.0')


def start(launch, run, *arguments, learners=2, actors=4):
    return launch.file('train', f'run_dir:={run}', f'num_learners:={learners}',
                       f'num_actors:={actors}', *arguments)


def group_of_two():
    """Return the arguments of two learners that meet at a free port."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        return 'num_learners:=2', f'group_address:=127.0.0.1:{free.getsockname()[1]}'


def test_two_learners_learn_cartpole_with_one_policy(launch, run, peer):
    policies = peer.listen('policy')
    # Synchronous: nothing is learned before all actors are there.
    train = start(launch, run, 'algorithm:=ppo', *LONG)
    node, topics = peer.node, ('trajectories', 'learner_1/trajectories')
    peer.until(lambda: policies and len(policies[-1].credits) == 4
               and all(each.used > 2 for each in policies[-1].credits), 'credit for all actors')
    peer.until(lambda: [node.count_publishers(each) for each in topics] == [2, 2]
               and [node.count_subscribers(each) for each in topics] == [1, 1]
               and {'learner_0', 'learner_1', 'actor_3'} <= set(node.get_node_names())
               and node.count_publishers('policy') == 1,
               'two actors of each learner and one publisher of the policy')
    names = {each.actor_id.rsplit('_', 1)[1] for each in policies[-1].credits}
    assert names == {'0', '1', '2', '3'}
    # Five times what a random policy gets.
    peer.until(lambda: any(float(row['mean_return_100']) >= 110 for row in run.progress),
               'learning')
    train.stop()
    assert len({each.learner_id for each in policies}) == 1
    found = run.summary
    assert found['ended_by'] == 'interrupted'
    assert found['learners'] == 2
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    # An update takes one of each actor; 1,024 steps each, less resets.
    assert found['trajectories_received'] >= 4 * found['updates']
    assert 0.9 * 4 * 1024 < found['agent_steps'] / found['updates'] <= 4 * 1024
    assert found['policy_lag'] == {'mean': 0.0, 'max': 0}
    assert found['actor_restarts'] == found['learner_restarts'] == 0
    assert [path.name for path in run.path.parent.iterdir() if path.is_dir()] == ['run']
    assert 'written by learner 0' in train.output
    assert train.family() == []


def test_a_killed_learner_takes_the_group_along_and_all_go_on(launch, run):
    train = start(launch, run, *LONG, 'env_id:=CartPole-v1', 'inference:=learner', actors=2)
    for rank in (0, 1):
        beyond = run.steps + 2_000
        train.wait_for(lambda beyond=beyond: run.steps > beyond, 'progress')
        written = run.checkpoint.stat().st_mtime_ns
        train.wait_for(
            lambda written=written: run.checkpoint.stat().st_mtime_ns != written, 'a checkpoint')
        before = train.nodes('learner')
        killed, = train.nodes('learner', f'__node:=learner_{rank}')
        killed.send_signal(signal.SIGKILL)
        train.wait_for(lambda before=before: len(set(train.nodes('learner')) - set(before)) == 2,
                       'two other learners')
        assert f'with learner {rank}' in train.output
    beyond = run.steps + 10_000
    train.wait_for(lambda: run.steps > beyond, 'progress of the new group')
    train.stop()
    found = run.summary
    assert found['ended_by'] == 'interrupted'
    assert (found['learner_restarts'], found['actor_restarts']) == (2, 0)
    assert found['trajectories_lost'] == 0
    assert 'Traceback' not in train.output


@pytest.mark.parametrize('rank', [0, 1])
def test_a_learner_stays_while_the_other_takes_longer_to_start_than_it_waits(launch, run, rank):
    """Else they would come and go in turn: each is absent while it starts again."""
    alone = launch.file('learner', *group_of_two(), f'learner_rank:={rank}', 'group_timeout:=1.0',
                        *[f'run_dir:={run}'][rank:])
    missing = f'learner {1 - rank} did not come within group_timeout, 1 s'
    alone.wait_for(lambda: alone.output.count(missing) >= 3, 'waiting')
    assert alone.output.count('process started') == 1, alone.output
    alone.stop()


def test_a_learner_that_is_told_otherwise_than_the_first_is_refused(launch, run):
    group = group_of_two()
    first = launch.file('learner', *group, f'run_dir:={run}', 'discount:=0.9')
    for told, line in (
            ('discount:=0.8', 'discount: 0.8 is not allowed: learner 0 has 0.9'),
            # The first one has begun anew, and waits for another.
            ('ppo_clip:=0.1', "ppo_clip: 0.1 is of algorithm 'ppo', and algorithm is 'impala'")):
        second = launch.file('learner', *group, 'learner_rank:=1', told)
        assert second.wait() == 1, second.output + first.output
        assert line in second.output
