"""Evaluations of a run: when, what is written, the best policy, and an evaluator that is gone."""

import itertools

import numpy as np
import pytest

from vdl_ros.rl.acting.evaluation import Evaluation
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.learning.evaluations import Result
from vdl_ros.rl.runs.checkpoint import load_checkpoint


class FakeEvaluator:
    """Answers each policy with the next of ``means``; None: not at all, a text: a problem."""

    def __init__(self, *means):
        self.means, self.policies, self.results = iter(means), [], []
        self.present = True

    def start(self, policy):
        self.policies.append(policy)
        mean = next(self.means)
        if isinstance(mean, str):
            self.results.append(Result(policy.agent_steps, None, mean))
        elif mean is not None:
            self.results.append(Result(policy.agent_steps, Evaluation(tuple(
                FinishedEpisode(0, mean + offset, 10, True, False, success=offset > 0)
                for offset in (-1, 1)))))

    def take(self):
        return self.results.pop(0) if self.results else None


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    # Time passes by the looks at a clock of the test.
    monkeypatch.setattr('vdl_ros.rl.learning.trainer.COLLECT_S', 0.001)


@pytest.fixture
def train(start):
    """Return a function that trains with an evaluator: reason, lines and summary."""
    def run(evaluator, **options):
        run = start(evaluator=evaluator, **{'eval_every': 100} | options)
        return run(), run.lines, run.summary
    return run


def column(tmp_path, name):
    return np.genfromtxt(
        tmp_path / 'run' / 'evaluations.csv', delimiter=',', names=True)[name].tolist()


def test_policies_are_evaluated_every_so_many_steps_and_the_best_is_kept(train, tmp_path):
    evaluator = FakeEvaluator(5.0, 9.0, 7.0, 9.0)
    reason, lines, summary = train(evaluator)
    assert reason == 'total_steps'
    steps = [each.agent_steps for each in evaluator.policies]
    assert [each // 100 for each in steps] == [1, 2, 3, 4]
    assert column(tmp_path, 'agent_steps') == steps
    assert column(tmp_path, 'mean_return') == [5.0, 9.0, 7.0, 9.0]
    # Two returns of deviation 1: 1.96 / sqrt(2 - 1).
    assert column(tmp_path, 'interval') == [1.96] * 4
    assert summary['evaluation']['count'] == 4
    assert summary['evaluation']['best'] == {
        **summary['evaluation']['best'], 'agent_steps': steps[1], 'mean_return': 9.0,
        'success_rate': 0.5}
    assert summary['evaluation']['last']['agent_steps'] == steps[3] == summary['agent_steps']
    best = load_checkpoint(tmp_path / 'run' / 'best.pt')
    assert best['learner']['agent_steps'] == steps[1]
    evaluated = evaluator.policies[1].weights
    assert all(np.array_equal(tensor.numpy(), evaluated[name])
               for name, tensor in best['learner']['policy'].items())
    assert not all(np.array_equal(array, evaluator.policies[3].weights[name])
                   for name, array in evaluated.items()), 'weights were copied'
    assert sum('the best so far' in line for line in lines) == 2


def test_patience_ends_a_run_that_gets_no_better(train):
    evaluator = FakeEvaluator(5.0, 6.0, 6.0, 5.0, 7.0, 8.0)
    reason, _, summary = train(evaluator, eval_patience=2, total_steps=10**6)
    assert reason == summary['ended_by'] == 'eval_patience'
    assert summary['evaluation']['count'] == 4, 'the last policy was evaluated already'


def test_patience_does_not_end_a_run_of_weights_that_stay_the_same(train):
    assert train(FakeEvaluator(*[5.0] * 9), eval_patience=1, freeze=True)[0] == 'total_steps'


@pytest.mark.parametrize(('present', 'step', 'problem'), [
    (True, 1.0, 'no result for 600 s'), (True, 300.0, 'no result for 600 s'),
    (False, 15.0, 'no evaluator for 30 s')])
def test_a_policy_that_gets_no_result_is_logged_and_delays_the_next_one_for_a_while(
        train, present, step, problem):
    # Each look at the clock is so much later.
    clock = itertools.count(0.0, step).__next__
    evaluator = FakeEvaluator(*[None] * 9)
    evaluator.present = present
    reason, lines, summary = train(evaluator, clock=clock)
    assert reason == 'total_steps'
    assert summary['evaluation'] == {'count': 0, 'last': None, 'best': None}
    awaited = [line for line in lines if line.startswith('not evaluated at ')]
    assert all(line.endswith(f' steps: {problem}') for line in awaited)
    if step == 1.0:
        assert len(evaluator.policies) == 2, 'the first is under way all the time, then the last'
        assert len(awaited) == 1
    else:
        assert len(evaluator.policies) == len(awaited) > 2


def test_a_result_that_comes_late_is_recorded_and_a_problem_is_logged(train, tmp_path):
    evaluator = FakeEvaluator('no such environment', None, 4.0, 4.0)

    def late(inbox):
        if inbox.sequence == 20:
            policy = evaluator.policies[1]
            evaluator.results.append(Result(10**9, Evaluation(())))
            evaluator.results.append(Result(policy.agent_steps, Evaluation(tuple(
                FinishedEpisode(0, 3.0, 10, True, False) for _ in range(2)))))

    # The second policy is not awaited any more.
    _, lines, summary = train(evaluator, inbox={'on_get': late}, clock=itertools.count(
        0.0, 100.0).__next__)
    assert any(line.endswith('steps: no result for 600 s') for line in lines)
    assert any(line.endswith('steps: no such environment') for line in lines)
    assert sum('a result at 1,000,000,000 steps is dropped' in line for line in lines) == 1
    assert column(tmp_path, 'mean_return') == [3.0, 4.0, 4.0]
    assert summary['evaluation']['count'] == 3


def test_a_resumed_run_keeps_its_best_policy_unless_it_is_damaged(train, tmp_path):
    train(FakeEvaluator(5.0, 9.0, 7.0, 7.0))
    before = load_checkpoint(tmp_path / 'run' / 'best.pt')
    _, _, summary = train(FakeEvaluator(8.0, 8.5), resume=True, total_steps=600)
    assert summary['evaluation']['best']['mean_return'] == 9.0
    assert load_checkpoint(tmp_path / 'run' / 'best.pt')['learner']['agent_steps'] == (
        before['learner']['agent_steps'])
    assert column(tmp_path, 'mean_return') == [5.0, 9.0, 7.0, 7.0, 8.0, 8.5]
    (tmp_path / 'run' / 'best.pt').write_bytes(b'x')
    _, lines, summary = train(FakeEvaluator(8.0, 8.0), resume=True, total_steps=800)
    assert summary['evaluation']['best']['mean_return'] == 8.0, 'a damaged one is replaced'
    assert any('best.pt: not the best policy of this run' in line for line in lines)
