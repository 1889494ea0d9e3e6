"""The training loop of two learners, each in a thread: they learn, end and fail together."""

import itertools
import json
import queue

import pytest
import torch

from vdl_ros.rl.distributed.collectives import Group, GroupError
from vdl_ros.rl.runs.checkpoint import load_checkpoint


@pytest.fixture
def runs(pair, start, tmp_path):
    """Return a function: what two runs of one group come to.

    ``inboxes`` are the arguments of each one's inbox; ``prepare`` is called with each run before
    it begins.
    """
    def both(inboxes=({}, {}), prepare=lambda run: None, **config):
        def work(group):
            group.all_gather = group._both
            group.broadcast = lambda data: group._both(data)[0]
            run = start(None if group.rank else tmp_path / 'run', {
                'actor_id': f'actor_{group.rank}', **inboxes[group.rank]}, group=group,
                **{'total_steps': 1000} | config)
            prepare(run)
            reason = run()
            return {'reason': reason, 'version': run.learner.version, 'lines': run.lines,
                    'weights': [each.tobytes() for each in run.learner.weights().values()],
                    'steps': run.learner.agent_steps, 'published': run.published,
                    'sequence': run.inbox.sequence}

        return pair(work, work)

    both.folder = tmp_path / 'run'
    return both


def summary(runs):
    return json.loads((runs.folder / 'summary.json').read_text())


def test_two_learners_make_one_run_and_learner_0_reports_it(runs):
    # The second one's environments are more, and its trajectories begin with a gap.
    def lose_one(inbox):
        if inbox.sequence == 3:
            inbox.sequence += 1
            inbox.clock += inbox.steps

    first, second = runs(({}, {'batch': 3, 'on_get': lose_one}))
    assert first['reason'] == second['reason'] == 'total_steps'
    assert first['weights'] == second['weights']
    assert first['version'] == second['version'] > 5
    assert 1000 <= first['steps'] == second['steps'] < 1000 + 2 * 8 * 5
    found = summary(runs)
    assert found['learners'] == 2
    assert found['agent_steps'] == first['steps']
    assert found['trajectories_received'] == first['sequence'] + second['sequence'] - 1
    assert found['trajectories_lost'] == 1
    assert found['mean_return_100'] == 5.0
    # Episodes take 6 steps; the one that the gap cut is not counted.
    steps = 8 * 2 * first['version']
    assert found['episodes'] == pytest.approx(5 * (steps + 1) / 6, abs=3 * 3)
    assert found['wire_bytes']['in'] == 100 * found['trajectories_received']
    assert found['policy_lag'] == {'mean': (first['version'] - 1) / 2, 'max': first['version'] - 1}
    assert load_checkpoint(runs.folder / 'checkpoint.pt')['learner']['version'] == first['version']


@pytest.mark.parametrize(('who', 'stopped'), [(0, 0), (0, 1), (1, 1)])
def test_interrupting_one_learner_ends_both(runs, who, stopped):
    """One has no actors: the other has a batch, and waits; both learn of the end at once."""
    stops, turns = {}, itertools.count(1)

    def nobody(inbox):
        if next(turns) == 3:
            stops[stopped].set()
        raise queue.Empty

    inboxes = [{}, {}]
    inboxes[who] = {'on_get': nobody}
    first, second = runs(inboxes, lambda run: stops.update({run.learner.group.rank: run.stop}))
    assert first['reason'] == second['reason'] == 'interrupted'
    assert first['version'] == second['version'] == 0
    assert summary(runs)['ended_by'] == 'interrupted'


@pytest.mark.parametrize('who', [0, 1])
def test_nonfinite_loss_of_one_learner_ends_both(runs, who):
    inboxes = [{}, {}]
    inboxes[who] = {'poison': 6}
    first, second = runs(inboxes)
    assert first['reason'] == second['reason'] == 'not finite'
    assert first['version'] == second['version'] == 3
    assert first['weights'] == second['weights']
    assert 'loss of another learner' in (first, second)[1 - who]['lines'][-1]
    assert load_checkpoint(runs.folder / 'checkpoint.pt')['learner']['version'] == 0


def test_checkpoint_is_saved_when_another_learner_dies(start):
    class Gone(Group):
        """Two learners that do the same, until the other is gone."""

        size = 2

        def all_reduce_sum(self, numbers):
            return 2 * numbers.detach()

        def all_reduce_gradients(self, parameters):
            if run.learner.version == 4:
                raise GroupError('learner 0 waited for learner 1')

    run = start(group=Gone())
    with pytest.raises(GroupError, match='waited for learner 1'):
        run()
    saved = load_checkpoint(run.folder.checkpoint)
    assert saved['learner']['version'] == 4
    assert torch.isfinite(saved['learner']['policy']['value_head.weight']).all()
    assert not (run.folder.path / 'summary.json').exists(), 'the run is not over'
