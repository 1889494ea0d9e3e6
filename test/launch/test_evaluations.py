"""Policies are evaluated by a process of their own, whose death the training survives."""

import csv

import pytest

from vdl_ros.rl.runs.checkpoint import load_checkpoint


def evaluations(run):
    path = run.path / 'evaluations.csv'
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def test_each_launch_has_an_evaluator_of_its_own_learner(plan):
    launches = [plan('train.launch.py', 'env_id:=CartPole-v1', 'eval_every:=1000')[0]
                for _ in range(2)]
    names = [[nodes[each]['launch_id'].value for each in ('learner', 'evaluator')]
             for nodes in launches]
    assert [len({*each}) for each in (*names, [*names[0], *names[1]])] == [1, 1, 2]


@pytest.mark.slow
def test_a_training_is_evaluated_although_its_evaluator_dies(launch, run):
    train = launch.file('train', f'run_dir:={run}', 'env_id:=CartPole-v1',
                        'total_steps:=1000000000', 'stop_at_return:=1e9', 'num_actors:=1',
                        'eval_every:=2000', 'eval_episodes:=4', 'eval_patience:=1000000',
                        'checkpoint_period:=1')
    train.wait_for(lambda: evaluations(run), 'an evaluation')
    train.nodes('evaluator')[0].kill()
    count = len(evaluations(run)) + 2
    train.wait_for(lambda: len(evaluations(run)) > count, 'evaluations by the next one')
    train.stop()
    assert run.summary['ended_by'] == 'interrupted'
    assert run.summary['learner_restarts'] == run.summary['actor_restarts'] == 0
    best = run.summary['evaluation']['best']
    assert load_checkpoint(run.path / 'best.pt')['learner']['agent_steps'] == best['agent_steps']
    assert best['mean_return'] == max(
        round(float(row['mean_return']), 3) for row in evaluations(run))
    assert run.scalars('evaluation/mean_return')

    again = launch.file('train', f'resume:={run}', 'eval_patience:=1', 'stop_at_return:=1e9')
    assert again.wait() == 0, again.output
    assert 'as the run before: num_actors:=1, num_learners:=1' in again.output
    assert again.output.count(' acts in ') == 1
    assert run.summary['ended_by'] == 'eval_patience'
    assert run.summary['evaluation']['last']['agent_steps'] == run.summary['agent_steps']
