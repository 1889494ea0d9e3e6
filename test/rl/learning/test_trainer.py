"""The training loop: why a run ends, its summary, reports, checkpoints and resuming."""

import dataclasses
import itertools
import queue
import re
import shutil
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from vdl_ros.common.metrics import CALLBACKS, TRAINING, ThreadTimer
from vdl_ros.rl.data.unroll import EndOfBagError
from vdl_ros.rl.learning.progress import Callbacks, WriteErrors
from vdl_ros.rl.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint


def test_total_steps_end_a_run_and_its_summary_is_complete_and_true(start):
    run = start(total_steps=2000)
    assert run() == 'total_steps'
    # 2 unrolls of 8 steps of 2 environments, less the steps that only reset.
    assert 2000 <= run.learner.agent_steps < 2000 + 32
    updates = run.learner.version
    assert load_checkpoint(run.folder.checkpoint)['learner']['version'] == updates
    assert (run.folder.path / 'curve.png').read_text() == 'scripted'
    last = run.folder.progress()[-1]
    assert last['agent_steps'] == run.learner.agent_steps
    assert (last['mean_return_100'], last['mean_length_100']) == (5.0, 5.0)
    assert run.lines
    summary, ages = run.summary, np.arange(1, run.inbox.sequence + 1)
    assert summary['wall_s'] > 0
    assert summary['steps_per_s'] == pytest.approx(
        summary['agent_steps'] / summary['wall_s'], rel=0.2)
    expected = {
        'env_id': 'scripted', 'algorithm': 'impala', 'ended_by': 'total_steps', 'device': 'cpu',
        'agent_steps': run.learner.agent_steps, 'updates': updates,
        'trajectories_received': run.inbox.sequence, 'trajectories_lost': 0,
        'trajectories_rejected': 0, 'mean_return_100': 5.0,
        # Episodes take 6 steps with the reset; the first reset observation is at step 0.
        'episodes': 2 * ((8 * run.inbox.sequence + 1) // 6),
        # All were acted with version 0.
        'policy_lag': {'mean': (updates - 1) / 2, 'max': updates - 1},
        'message_age_ms': {name: pytest.approx(np.percentile(ages, share), abs=1e-2)
                           for name, share in (('p50', 50), ('p99', 99))},
        'actor_restarts': 0, 'learner_restarts': 0,
        'wire_bytes': {'in': 100 * run.inbox.sequence, 'out': 0}}
    assert {name: summary[name] for name in expected} == expected
    assert run.inbox.sequence == 2 * updates


def test_a_bag_is_learned_from_to_its_end(start):
    def end(inbox):
        if inbox.sequence == 5:
            raise EndOfBagError

    run = start(inbox={'on_get': end}, total_steps=10**6)
    assert run() == 'end_of_bag'
    assert run.learner.version == 2, 'one is left over: an update takes two'
    assert run.summary['trajectories_received'] == 5
    assert run.summary['ended_by'] == 'end_of_bag'


def test_reaching_stop_at_return_ends_a_run(start, monkeypatch, tmp_path):
    run = start(stop_at_return=5.0, total_steps=10**6)
    assert run() == 'stop_at_return'
    # Not before 100 episodes, and not long after.
    assert 100 <= run.summary['episodes'] <= 110
    missed = start(path=tmp_path / 'missed', stop_at_return=5.01, total_steps=2000)
    assert missed() == 'total_steps'
    assert missed.summary['episodes'] > 100
    # The default is none.
    monkeypatch.setattr('vdl_ros.rl.learning.trainer.NO_THRESHOLD', 5.0)
    run = start(path=tmp_path / 'default', stop_at_return=5.0, total_steps=2000)
    assert run() == 'total_steps'


def test_an_interrupted_run_is_saved(start):
    run = start(inbox={'on_get': lambda inbox: inbox.sequence == 7 and run.stop.set()})
    assert run() == 'interrupted'
    # The batch under way is not learned from half.
    assert run.learner.version == 4
    assert load_checkpoint(run.folder.checkpoint)['learner']['version'] == 4
    assert run.summary['ended_by'] == 'interrupted'


def test_a_run_whose_actors_or_environments_fail_is_saved(start):
    def fail(inbox):
        if inbox.sequence == 7:
            raise RuntimeError('of an environment')

    run = start(inbox={'on_get': fail})
    with pytest.raises(RuntimeError, match='of an environment'):
        run()
    assert load_checkpoint(run.folder.checkpoint)['learner']['version'] == run.learner.version > 0


def test_a_long_update_says_at_which_optimizer_step_it_is(start, monkeypatch):
    monkeypatch.setattr('vdl_ros.rl.learning.trainer._SILENT_S', 0.0)
    monkeypatch.setattr('vdl_ros.rl.learning.trainer._LOOK_S', 0.01)
    run, lines, lasts = start(), [], threading.Event()

    def log(line):
        if line.startswith('update 1 lasts '):
            lines.append(line)
            lasts.set()

    run.trainer._calls = Callbacks(log=log)
    run.learner.algorithm.optimizer.after_step = lambda: lasts.wait(60)
    assert run() == 'total_steps'
    assert re.fullmatch(r'update 1 lasts \d+ s: optimizer step \d of 1', lines[0])


def test_time_shares_and_extra_scalars_are_written(start):
    # Whatever is done takes a tick for each look at the clock, however fast the machine is.
    ticks = itertools.count()
    timers = {TRAINING: ThreadTimer(lambda: next(ticks)), CALLBACKS: ThreadTimer()}
    figures = [{'topics/policy/rate_hz': 5.0}]
    run = start(timers=timers, extra_scalars=lambda: figures.pop() if figures else {})
    run()
    shares = run.summary['time_shares']
    assert set(shares) == {TRAINING, CALLBACKS}
    assert sum(shares[TRAINING].values()) == pytest.approx(1.0, abs=1e-3)
    assert shares[TRAINING]['learn'] > 0
    assert shares[TRAINING]['publish'] > 0
    assert shares[CALLBACKS] == {'other': 1.0}
    events = EventAccumulator(str(run.folder.path))
    events.Reload()
    learning = [event.value for event in events.Scalars('time/training/learn')]
    assert 0 < max(learning) <= 1
    assert events.Scalars('time/callbacks/other')[-1].value == 1.0
    assert [event.value for event in events.Scalars('topics/policy/rate_hz')] == [5.0]
    assert events.Scalars('charts/SPS')
    assert events.Scalars('charts/episodic_length')[-1].value == 5.0


def test_the_wait_for_the_first_trajectory_does_not_weigh_in_what_limits_the_run(
        start, monkeypatch):
    now, seconds = [0.0], []

    def get(inbox):
        now[0] = 1000.0

    run = start(inbox={'on_get': get})
    reporter = run.trainer.reporter
    monkeypatch.setattr(reporter._row_rates, '_clock', lambda: now[0])
    monkeypatch.setattr(reporter.bottleneck, 'add', lambda _, weight: seconds.append(weight))
    run()
    assert seconds
    assert sum(seconds) < 1.0


def test_a_run_without_actors_can_be_interrupted(start):
    def nobody(inbox):
        run.stop.set()
        raise queue.Empty

    run = start(inbox={'on_get': nobody})
    assert run() == 'interrupted'
    found = run.summary
    assert (found['mean_return_100'], found['steps_per_s']) == (None, 0)
    assert found['message_age_ms'] == {'p50': None, 'p99': None}
    assert (run.folder.path / 'curve.png').read_text() == 'scripted'


def test_policy_is_published_at_the_start_and_every_publish_every_updates(start):
    run, shown = start(publish_every=2, max_in_flight=4), []
    # What was demonstrated is learned before anybody acts.
    run.learner.algorithm.warm_up = lambda: shown.append(len(run.published))
    run()
    assert shown == [0]
    assert [version for version, _ in run.published] == [0, *range(2, run.learner.version + 1, 2)]


def test_resumed_run_continues_steps_episodes_and_progress(start):
    first = start()
    first()
    before = first.summary
    wall_s = load_checkpoint(first.folder.checkpoint)['progress']['wall_s']
    again = start(resume=True, total_steps=800)
    assert (again.learner.agent_steps, again.learner.version) == (
        first.learner.agent_steps, first.learner.version)
    progress = again.trainer.progress
    assert progress.mean_return == progress.mean_length == 5.0
    assert again() == 'total_steps'
    after = again.summary
    assert after['trajectories_received'] == before['trajectories_received'] + again.inbox.sequence
    assert after['episodes'] > before['episodes']
    assert after['wall_s'] > wall_s > 0
    assert after['learner_restarts'] == 0
    steps = [row['agent_steps'] for row in again.folder.progress()]
    assert first.learner.agent_steps in steps
    assert steps == sorted(steps)
    assert steps[-1] == again.learner.agent_steps >= 800
    finished = start(resume=True)
    assert finished() == 'total_steps'
    assert finished.inbox.sequence == 0
    assert finished.summary['agent_steps'] == again.learner.agent_steps


def test_a_run_without_any_trajectory_says_for_whom_it_waits(start):
    now = [0.0]

    def go_away(inbox):
        if inbox.sequence == 4:
            now[0] += 5.0
            if now[0] > 100.0:
                run.stop.set()
            raise queue.Empty

    run = start(clock=lambda: now[0],
                inbox={'on_get': go_away, 'actor_id': 'b\x1b[2J' + 'x' * 200})
    assert run() == 'interrupted'
    stalls = [line for line in run.lines if line.startswith('stalled')]
    assert [line[:39] for line in stalls] == [
        f"stalled for {seconds} s, waiting for 'b\\x1b[2J" for seconds in (30, 60, 90)]
    assert all(len(line) < 200 for line in stalls)


def test_a_run_whose_actor_is_slow_says_how_far_it_is_and_is_not_stalled(start, monkeypatch):
    monkeypatch.setattr('vdl_ros.rl.learning.trainer._SILENT_S', 0.0)
    monkeypatch.setattr('vdl_ros.rl.learning.trainer._LOOK_S', 0.01)
    now, said, again = [0.0], [], threading.Event()

    def act(inbox):
        now[0] += 31.0
        again.wait(20)
        run.stop.set()
        raise queue.Empty

    def log(line):
        said.append(line.endswith(': 0 of 2 are here; step 5'))
        if sum(said) == 2:
            again.set()

    run = start(clock=lambda: now[0], inbox={'on_get': act}, progress=lambda: 'step 5')
    run.trainer._calls = dataclasses.replace(run.trainer._calls, log=log)
    assert run() == 'interrupted'
    assert again.is_set()
    assert not [line for line in run.lines if line.startswith('stalled')]


def test_a_trainer_is_busy_while_it_computes_and_not_while_it_waits(start):
    waiting = []
    run = start(inbox={'on_get': lambda inbox: waiting.append(run.trainer.busy)})
    learn, learning = run.learner.learn, []
    run.learner.learn = lambda batch: (learning.append(run.trainer.busy), learn(batch))[1]
    assert run() == 'total_steps'
    assert set(waiting) == {False}
    assert set(learning) == {True}


def test_checkpoints_and_status_lines_follow_their_periods(start):
    run, saved = start(periods=(0.0, 0.0)), []
    save = run.folder.save
    run.folder.save = lambda **parts: (saved.append(run.learner.version), save(**parts))
    run()
    assert set(saved) >= set(range(1, run.learner.version + 1))
    assert len(run.lines) >= run.learner.version
    assert re.fullmatch(r'steps \d+ / 400 \(100%, 0:00 left\) [\d,]+/s return 5.0 '
                        r'lag \d+.\d', ' '.join(run.lines[-1].split()))


def test_a_run_in_which_no_episode_ends_hints_at_the_time_limit_once(start):
    run = start(inbox={'ends': False}, periods=(1e6, 0.0))
    run()
    hints = [line for line in run.lines if 'time_limit' in line]
    assert len(hints) == 1
    assert hints[0].startswith('no episode has ended, the longest has ')

def failing(write, times):
    """Return ``write``, whose first calls find a full disk."""
    tries = itertools.count()

    def sometimes(*args, **kwargs):
        if next(tries) < times:
            raise OSError(28, 'No space left on device')
        return write(*args, **kwargs)
    return sometimes


def test_a_failed_periodic_checkpoint_is_a_warning_and_is_tried_again(start):
    run = start(periods=(0.0, 1e6))
    run.folder.save = failing(run.folder.save, 3)
    assert run() == 'total_steps'
    warnings = [line for line in run.lines if line.startswith('checkpoint not written')]
    assert warnings == ['checkpoint not written: [Errno 28] No space left on device; '
                        'the run goes on']
    assert load_checkpoint(run.folder.checkpoint)['learner']['version'] == run.learner.version


@pytest.mark.parametrize('file', ['checkpoint', 'summary'])
def test_an_end_that_cannot_be_written_is_one_line_and_leaves_a_whole_checkpoint(
        start, monkeypatch, file):
    run = start()
    if file == 'checkpoint':
        monkeypatch.setattr('vdl_ros.rl.runs.run_folder.save_checkpoint', failing(None, 1))
    else:
        run.folder.close = failing(None, 1)
    assert run() == 'a failed write'
    steps = run.learner.agent_steps
    line, = (line for line in run.lines if 'not written' in line)
    assert line == '[Errno 28] No space left on device: not written; ' + (
        'what was learned after 0 agent steps is lost, their checkpoint is whole'
        if file == 'checkpoint' else f'the checkpoint of {steps} agent steps is whole')
    saved = load_checkpoint(run.folder.checkpoint)['learner']['agent_steps']
    assert saved == (0 if file == 'checkpoint' else steps)
    assert not (run.folder.path / 'summary.json').exists()
    run.folder.checkpoint.unlink()
    assert run.trainer.reporter.lost == 'what was learned is lost, its checkpoint is gone'


def test_what_a_signal_raises_at_the_end_is_no_failed_write(start):
    run = start()
    run.folder.close = Mock(side_effect=TimeoutError('an alarm'))
    with pytest.raises(TimeoutError, match='an alarm'):
        run()


def test_a_folder_that_was_removed_is_made_again_for_the_last_checkpoint(start):
    run = start()
    shutil.rmtree(run.folder.path)
    assert run() == 'total_steps'
    assert load_checkpoint(run.folder.checkpoint)['learner']['version'] == run.learner.version


def test_what_is_not_written_again_and_again_is_said_every_minute():
    lines, times = [], [0.0, 1.0, 59.0, 60.0, 61.0]
    told = WriteErrors(lines.append, iter(times).__next__)
    for _ in times:
        with told('progress'):
            raise OSError('full')
    assert lines == ['progress not written: full; the run goes on',
                     'progress not written (3 times): full; the run goes on']


def test_progress_that_cannot_be_written_is_a_warning_and_later_rows_are_written(
        start, monkeypatch):
    run = start()
    run.folder.report = failing(run.folder.report, 2)
    # A row for every update.
    monkeypatch.setattr('vdl_ros.rl.learning.reporting.time',
                        SimpleNamespace(monotonic=itertools.count().__next__))
    assert run() == 'total_steps'
    assert sum(line.startswith('progress not written: ') for line in run.lines) == 1
    assert run.folder.progress()[-1]['agent_steps'] == run.learner.agent_steps


def test_a_folder_that_cannot_hold_a_checkpoint_is_found_before_the_run(start, monkeypatch):
    monkeypatch.setattr('vdl_ros.rl.runs.run_folder.save_checkpoint', failing(None, 1))
    with pytest.raises(OSError, match='No space left'):
        start()


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(start):
    run = start()
    run()
    path, parts = run.folder.checkpoint, load_checkpoint(run.folder.checkpoint)
    for changed, message in (({'env_id': 'other'}, "env_id 'scripted' is not 'other'"),
                             ({'algorithm': 'ppo'}, "algorithm 'impala' is not 'ppo'")):
        with pytest.raises(ValueError, match=rf'^[^\n]*checkpoint.pt: {message}'):
            start(resume=True, changed=changed)
    for key in ('returns', 'received', 'lag'):
        progress = {name: each for name, each in parts['progress'].items() if name != key}
        save_checkpoint(path, config=parts['config'], learner=parts['learner'], progress=progress)
        with pytest.raises(CheckpointError, match=rf"^[^\n]*checkpoint.pt: .*'{key}'"):
            start(resume=True)
