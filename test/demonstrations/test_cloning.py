"""Behaviour cloning: what is learned, what goes on from it, and what is refused."""

import json
import re
import threading
from functools import partial

import gymnasium
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vdl_ros.demonstrations.env_recorder import record_environment
from vdl_ros.demonstrations.loading import demonstration_inbox, load_demonstrations, read_lerobot
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.local_training import main as train
from vdl_ros.nodes.record_episodes import main as record_episodes
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.rl.acting import evaluation
from vdl_ros.rl.acting.evaluation import evaluate
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import BcConfig, SacConfig, TrainConfig


def push_under(observation):
    """Return the action of an expert for CartPole: under the pole, and back to the middle."""
    position, velocity, angle, turning = observation
    return int(angle + 0.3 * turning + 0.02 * position + 0.04 * velocity > 0.0)


def write(folder, states, actions, episodes=None, **info):
    """Write what is read of a LeRobot data set."""
    states, actions = (list(np.asarray(each, np.float32)) for each in (states, actions))
    (folder / 'meta').mkdir(parents=True)
    (folder / 'data/chunk-000').mkdir(parents=True)
    (folder / 'meta/info.json').write_text(json.dumps(
        {'codebase_version': 'v3.0', 'fps': 50, 'features': {}} | info))
    pq.write_table(pa.table({
        'observation.state': states, 'action': actions,
        'episode_index': pa.array(episodes or [0] * len(states), pa.int64())}),
        folder / 'data/chunk-000/file-000.parquet')
    return folder


@pytest.fixture(scope='module')
def demonstrations(tmp_path_factory):
    """Return a data set of the expert, disturbed by random pushes that are not recorded."""
    env, random = gymnasium.make('CartPole-v1'), np.random.default_rng(1)
    rows = []
    for episode in range(8):
        state, _ = env.reset(seed=episode)
        done = False
        while not done and len(rows) < 300 * (episode + 1):
            chosen = push_under(state)
            rows.append((state, [chosen], episode))
            pushed = int(random.integers(2)) if random.random() < 0.2 else chosen
            state, _, done, _, _ = env.step(pushed)
    states, actions, episodes = zip(*rows, strict=True)
    return write(tmp_path_factory.mktemp('expert') / 'data', states, actions, episodes)


def test_demonstrated_forces_are_learned_in_units_of_the_policy(tmp_path):
    folder = write(tmp_path / 'data', np.ones((9, 3)), np.full((9, 1), 1.5))
    env, config, own = (
        EnvConfig(env_id='Pendulum-v1'), TrainConfig(algorithm='bc'), BcConfig(str(folder)))
    learner = Learner(config, *factory.spaces(env), algorithm_config=own)
    inbox = demonstration_inbox(env, config, own, EnvModulesConfig(), learner, FlowStats())
    # In the range from -2 to 2.
    assert np.unique(inbox.get(0.0).arrays['actions']).tolist() == [0.75]


def test_chunks_are_of_one_episode_and_are_cloned(demonstrations, tmp_path, capsys):
    folder = write(tmp_path / 'data', np.zeros((5, 4)), [[each] for each in (0, 1, 1, 0, 1)],
                   [0, 0, 0, 1, 1])
    spaces = factory.spaces(EnvConfig(env_id='CartPole-v1'))
    found = load_demonstrations(folder, 'CartPole-v1', spaces, {}, chunk=3)
    assert found.actions.tolist() == [[0, 1, 1], [1, 1, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1]]
    assert clone(demonstrations, tmp_path / 'bc', '--chunk', '3', '--total_steps', '10000',
                 '--learning_rate', '0.01') == 0
    assert re.search(r'/s   loss -?\d\.\d{4}\n', capsys.readouterr().out)
    assert returns_of(tmp_path / 'bc/checkpoint.pt') > 400.0, 'of 500'


def returns_of(checkpoint):
    saved = load_policy(checkpoint)
    envs = factory.make(saved.env, seed=1000, num_envs=10)
    found = evaluate(envs, saved.act(), 10, 1000).mean
    envs.close()
    return found


def clone(folder, run, *options):
    return train(['--env_id', 'CartPole-v1', '--algorithm', 'bc', '--demonstrations', str(folder),
                  '--run_dir', str(run), *options])


@pytest.fixture(scope='module')
def cloned(demonstrations, tmp_path_factory):
    """Return the checkpoint of a policy that was cloned."""
    run = tmp_path_factory.mktemp('cloned') / 'bc'
    assert clone(demonstrations, run, '--total_steps', '100000') == 0
    return run / 'checkpoint.pt'


def test_a_cloned_policy_acts_as_its_expert_and_is_recorded(cloned, tmp_path, capsys):
    assert returns_of(cloned) > 400.0, 'of 500'
    # The policy demonstrates in turn.
    output = tmp_path / 'again'
    words = ['--env', 'CartPole-v1', '--policy', str(cloned), '--episodes', '3', '--output',
             str(output)]
    assert record_episodes([*words, '--env_modules', 'missing']) == 2
    assert "record_episodes: env_modules: 'missing'" in capsys.readouterr().err
    assert record_episodes(words) == 0
    again = read_lerobot(output)
    assert (again.robot, again.fps) == ('CartPole-v1', 50.0)
    assert np.bincount(again.episodes).shape == (3,)
    assert np.mean([push_under(state) == action for state, (action,) in zip(
        again.states, again.actions, strict=True)]) > 0.75


class ActionsFrom5(gymnasium.Env):
    """One step, with actions that do not count from 0."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, **kwargs):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.zeros(1, np.float32), 0.0, True, False, {}


@pytest.mark.parametrize(('space', 'act', 'stored'), [
    (gymnasium.spaces.Discrete(3, start=5), 2, 7),
    (gymnasium.spaces.MultiDiscrete([3, 4], start=[5, -2]), [2, 1], [7, -1])])
def test_files_have_the_actions_as_the_environment_counts_them(tmp_path, space, act, stored):
    gymnasium.register('ActionsFrom5-v0', partial(ActionsFrom5, space))
    env, config = EnvConfig(env_id='ActionsFrom5-v0'), TrainConfig(algorithm='bc')
    record_environment(lambda *_: np.array([act] * 2), env, 2, tmp_path / 'data', task='')
    assert read_lerobot(tmp_path / 'data').actions.tolist() == [np.ravel(stored).tolist()] * 2
    own = BcConfig(str(tmp_path / 'data'))
    learner = Learner(config, *factory.spaces(env), algorithm_config=own)
    inbox = demonstration_inbox(env, config, own, EnvModulesConfig(), learner, FlowStats())
    assert np.unique(inbox.get(0.0).arrays['actions'].reshape(-1, np.size(act)), axis=0).tolist(
        ) == [np.ravel(act).tolist()]
    data = write(tmp_path / 'beyond', np.zeros((1, 1)), np.ravel(act)[None])
    with pytest.raises(ValueError, match=r'action 2 of row 0, part 0, .* from \[5'):
        demonstration_inbox(env, config, BcConfig(str(data)), EnvModulesConfig(), learner,
                            FlowStats())


class SaysOnlySuccess(gymnasium.Env):
    """Each second episode succeeds, after two steps; others fail after one."""

    observation_space = gymnasium.spaces.Box(0.0, 2.0, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    number = -1

    def reset(self, **kwargs):
        self.number, self.steps = (self.number + 1) % 2, 0
        return np.array([self.number, 0], np.float32), {}

    def step(self, action):
        self.steps += 1
        succeeds = self.number == 1 and self.steps == 2
        return (np.array([self.number, self.steps], np.float64), 0.0,
                succeeds or not self.number, False, {'is_success': True} if succeeds else {})


def test_failures_of_an_environment_that_tells_only_of_success_are_left_out(tmp_path):
    gymnasium.register('SaysOnlySuccess-v0', SaysOnlySuccess)
    assert record_environment(
        lambda *_: np.zeros(16, np.int64), EnvConfig(env_id='SaysOnlySuccess-v0'), 17,
        tmp_path / 'data', task='') == (17, 17)
    found = load_demonstrations(tmp_path / 'data', 'SaysOnlySuccess-v0', factory.spaces(
        EnvConfig(env_id='SaysOnlySuccess-v0')), {})
    assert found.observations.tolist() == [[1.0, 0.0], [1.0, 1.0]] * 17
    assert found.observations.dtype == np.float64


def test_a_recording_says_how_it_goes_and_keeps_its_episodes_when_it_is_interrupted(
        tmp_path, monkeypatch):
    stop, lines = threading.Event(), []

    def tell(line):
        lines.append(line)
        if not line.startswith('0 of 4'):
            stop.set()

    monkeypatch.setattr(evaluation, '_TELL_S', 0.0)
    count, failures = record_environment(
        lambda *_: np.zeros(4, np.int64), EnvConfig(env_id='CartPole-v1'), 4, tmp_path / 'data',
        task='', stop=stop, tell=tell)
    assert lines[0] == (
        '0 of 4 episodes are recorded, 0 others had no success in 0 s; the longest of the others '
        'has 1 steps, and time_limit would end it')
    assert lines.pop() == 'CartPole-v1: tells of no success: all episodes count'
    assert lines[-1].startswith(f'{count} of 4 episodes are recorded, {failures} others')
    assert 0 < read_lerobot(tmp_path / 'data').episodes[-1] + 1 == count < 4


STATES, ACTIONS = np.zeros((9, 4)), np.ones((9, 1))


def test_what_cannot_be_cloned_is_refused_in_one_line(tmp_path, capsys):
    for number, (states, actions, info, reason) in enumerate((
            (np.zeros((9, 5)), ACTIONS, {},
             'observations of shape [5] do not fit the environment: [4]'),
            (STATES, 2 * ACTIONS, {},
             'action 2 of row 0, part 0, does not fit the actions of the environment: Discrete'),
            (STATES, 0.5 * ACTIONS, {}, 'action 0.5 of row 0'),
            (STATES, np.zeros((9, 2)), {}, '2 numbers in an action do not fit'),
            (STATES + np.nan, ACTIONS, {}, 'observations that are not finite'),
            (STATES, ACTIONS, {'codebase_version': 'v2.1'},
             "info.json: codebase_version: 'v2.1' is not allowed: v3.0 of LeRobotDataset; its "
             'convert_dataset_v21_to_v30 makes it of v2.1'),
            (STATES[:0], ACTIONS[:0], {}, 'rows of null instead of numbers'))):
        data = write(tmp_path / f'data{number}', states, actions, **info)
        assert clone(data, tmp_path / 'run') == 2
        line = capsys.readouterr().err
        assert reason in line
        assert line.count('\n') == 1
        assert 'demonstrations: ' in line


def test_a_data_set_that_does_not_fit_in_memory_is_one_line(tmp_path, monkeypatch):
    def read(*args, **options):
        raise pa.ArrowMemoryError('malloc failed')

    data = write(tmp_path / 'data', STATES, ACTIONS)
    monkeypatch.setattr(pq.ParquetFile, 'read', read)
    with pytest.raises(ValueError, match=rf'^{data}: more than .* MB in memory are not allowed'):
        read_lerobot(data)


def test_a_missing_bag_and_settings_that_do_not_fit_cloning_are_refused(
        demonstrations, tmp_path, capsys):
    for options, reason in (
            (['--demonstrations', str(tmp_path)], 'no bag is there'),
            (['--lstm_size', '8'], "lstm_size: 8 is not allowed with algorithm 'bc': 0"),
            (['--action_distribution', 'squashed'],
             "not allowed with algorithm 'bc': 'gaussian'"),
            (['--demonstrations', ''], "demonstrations: '' is not allowed with algorithm 'bc'")):
        assert clone(demonstrations, tmp_path / 'run', *options) == 2
        assert reason in capsys.readouterr().err


def test_recorded_episodes_have_outcomes_that_sac_learns_from(tmp_path, capsys):
    def act(observations, *_):
        return (observations[:, 2] > 0.0).astype(np.int64)

    env, folder = EnvConfig(env_id='CartPole-v1'), tmp_path / 'data'
    record_environment(act, env, 3, folder, task='balance')
    found = load_demonstrations(folder, env.env_id, factory.spaces(env), {}, outcomes=True)
    outcomes, inside = found.outcomes, ~found.outcomes.ends[:-1]
    np.testing.assert_array_equal(
        found.observations[1:][inside], outcomes.observations[:-1][inside])
    assert outcomes.terminated.sum() == outcomes.ends.sum() == found.episodes == 3
    assert np.all(outcomes.rewards == 1.0)

    learner = Learner(TrainConfig(algorithm='sac', unroll_length=16), *factory.spaces(env),
                      algorithm_config=SacConfig(demonstrations=str(folder)))
    batch = learner.make_batch([found.as_unroll(learner.schema)])
    rows = [(t, b) for b in range(batch.valid.shape[1]) for t in range(16) if batch.valid[t, b]]
    assert len(rows) == len(found.actions)
    times, columns = map(list, zip(*rows, strict=True))
    np.testing.assert_array_equal(batch.observations[times, columns], found.observations)
    np.testing.assert_array_equal(
        batch.observations[[t + 1 for t in times], columns][~outcomes.terminated],
        outcomes.observations[~outcomes.terminated])
    np.testing.assert_array_equal(batch.terminated[times, columns], outcomes.terminated)

    options = ['--env_id', 'CartPole-v1', '--algorithm', 'sac', '--total_steps', '400',
               '--replay_start', '50', '--run_dir', str(tmp_path / 'run')]
    assert train([*options, '--demonstrations', str(folder)]) == 0
    assert re.search(r'50 % of each optimizer step are of \d+ steps of 3 demonstrations, of which '
                     '3 end .*; a new run learns from them before anybody acts\n',
                     capsys.readouterr().out)
    without = write(tmp_path / 'old', STATES, ACTIONS)
    assert train([*options, '--demonstrations', str(without)]) == 2
    assert 'it has no next.reward and next.done' in capsys.readouterr().err


@pytest.mark.slow
def test_a_launch_clones_without_actors(launch, demonstrations, tmp_path):
    run = tmp_path / 'run'
    process = launch(
        'ros2', 'launch', 'vdl_ros', 'train.launch.py', 'env_id:=CartPole-v1', 'algorithm:=bc',
        f'demonstrations:={demonstrations}', 'total_steps:=150000', 'video:=false',
        f'run_dir:={run}')
    assert process.wait() == 0, process.output
    assert 'ended by total_steps' in process.output
    assert 'actor' not in process.output
    assert returns_of(run / 'checkpoint.pt') > 400.0
