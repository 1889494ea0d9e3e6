"""Sessions of several agents in one process: bodies, ends, seeds, resuming, and bad files."""

import itertools
import json
import re
import threading

import duel_world
import pytest

from vdl_ros import multi_agent_training
from vdl_ros.envs import factory
from vdl_ros.multi_agent_training import train
from vdl_ros.recipes.agents_file import AgentsFile, read_agents_file
from vdl_ros.rl.acting.actor import SharedActors
from vdl_ros.rl.runs.checkpoint import load_checkpoint, pack
from vdl_ros.tools import match

PPO = {'algorithm': 'ppo', 'unroll_length': 10, 'batch_size': 1, 'total_steps': 100}
A3C = {'algorithm': 'a3c', 'unroll_length': 5, 'batch_size': 2, 'total_steps': 150}
CART_POLE = {'env_id': 'CartPole-v1'}
DUEL = {'env_id': duel_world.DUEL, 'num_envs': 3}
DUELLISTS = [(0, 0, 0), (0, 0, 1), (1, 0, 0)]


def session(folder, agents, envs, bodies, **more):
    """Run a session; return by agent its summary and its weights."""
    ends = train(AgentsFile(agents, envs, bodies), folder, threading.Event(), **more)
    assert set(ends.values()) == {'total_steps'}
    found = {}
    for name in agents:
        summary = json.loads((folder / name / 'summary.json').read_text())
        weights = load_checkpoint(folder / name / 'checkpoint.pt')['learner']['policy']
        found[name] = summary, weights
    return found


@pytest.mark.parametrize(('agents', 'envs', 'bodies'), [
    # 2 x 1 x 6, copies of one environment, and other algorithms.
    ({'first': PPO, 'second': A3C}, [CART_POLE],
     [(agent, 0, body) for agent in range(2) for body in range(6)]),
    # Each in its own, and the first in that of the second too.
    ({'first': PPO, 'second': A3C}, [CART_POLE, {**CART_POLE, 'time_limit': 20}],
     [(0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 1, 1)]),
    # One world: red bodies of one agent, the blue one of the other, which has steps left.
    ({'red': PPO, 'blue': A3C}, [DUEL], DUELLISTS),
], ids=['copies', 'environments', 'world'])
def test_each_agent_learns_its_steps(tmp_path, agents, envs, bodies):
    for name, (summary, _) in session(tmp_path, agents, envs, bodies).items():
        # It learns no more once it is done, though the other one goes on.
        assert 0 <= summary['agent_steps'] - agents[name]['total_steps'] < 10 * 24
        assert summary['updates'] > 0
        assert summary['episodes'] > 0
        assert summary['trajectories_lost'] == 0


def test_a_session_is_deterministic_and_a_finished_one_can_get_longer(tmp_path, monkeypatch):
    agents, seeds, make = {'red': PPO, 'blue': A3C}, [], factory.make_shared
    monkeypatch.setattr(factory, 'make_shared', lambda config, seed, shares: (
        seeds.append(seed), make(config, seed, shares))[1])
    first, again, other = (session(tmp_path / name, agents, [DUEL], DUELLISTS, seed=seed)
                           for name, seed in (('a', 5), ('b', 5), ('c', 6)))
    longer = {name: {**each, 'total_steps': 250} for name, each in agents.items()}
    resumed = session(tmp_path / 'a', longer, [DUEL], DUELLISTS, seed=5)
    assert seeds[0] == seeds[1] != seeds[3], 'other episodes than the first ones'
    for name in agents:
        assert pack(first[name][1]) == pack(again[name][1]) != pack(other[name][1])
        assert resumed[name][0]['agent_steps'] >= 250
        assert resumed[name][0]['updates'] > first[name][0]['updates']


def test_a_fixed_opponent_keeps_its_weights_and_plays_a_match(tmp_path, capsys):
    earlier = session(tmp_path / 'a', {'red': PPO, 'blue': A3C}, [DUEL], DUELLISTS)
    opponent = {**A3C, 'freeze': True, 'init': str(tmp_path / 'a' / 'blue')}
    later = session(tmp_path / 'b', {'red': PPO, 'blue': opponent}, [DUEL], DUELLISTS)
    assert pack(earlier['blue'][1]) == pack(later['blue'][1])
    assert later['red'][0]['updates'] > 0
    red = tmp_path / 'b' / 'red'
    players = [f'red_*={red}', f'blue_*={tmp_path / "b" / "blue"}']
    assert match.main([*players, '--episodes', '3']) == 0
    assert 'blue_0: 3 episodes: mean ' in capsys.readouterr().out
    for wrong, message in (('blue_0', "'blue_0' is not allowed"),
                           (f'blue_*={red}', 'was trained for red_0, red_1'),
                           ('green=random', 'blue_0: nobody acts')):
        assert match.main([players[0], wrong]) == 2
        assert message in capsys.readouterr().err, wrong


def test_all_agents_are_saved_when_an_environment_fails(tmp_path, monkeypatch):
    step, steps = SharedActors.step, itertools.count()

    def fail(actors):
        if next(steps) == 60:
            raise RuntimeError('of an environment')
        return step(actors)

    monkeypatch.setattr(SharedActors, 'step', fail)
    with pytest.raises(RuntimeError, match='of an environment'):
        session(tmp_path, {'red': PPO, 'blue': A3C}, [DUEL], DUELLISTS)
    for name in ('red', 'blue'):
        assert json.loads((tmp_path / name / 'summary.json').read_text())['agent_steps'] > 0


@pytest.mark.slow
def test_agents_learn_rewards_of_their_own_bodies_as_a_match_shows(tmp_path, capsys):
    # A body's reward is its action, 0 to 3, in episodes of 5 steps.
    settings = {'algorithm': 'ppo', 'unroll_length': 15, 'batch_size': 1, 'discount': 0.5,
                'learning_rate': 0.02, 'total_steps': 3000}
    found = session(tmp_path, {'red': settings, 'blue': {**settings, 'freeze': True}}, [DUEL],
                    DUELLISTS)
    # Red bodies have 3 and 5 steps: at random 6 on average, at best 12.
    assert found['red'][0]['mean_return_100'] > 11
    assert found['blue'][0]['mean_return_100'] < 9
    assert match.main([f'red_*={tmp_path / "red"}', 'blue_*=random', '--episodes', '40']) == 0
    returns = dict(re.findall(r'(\w+): 40 episodes: mean ([\d.]+)', capsys.readouterr().out))
    assert float(returns['red_0']) > 8
    assert float(returns['red_1']) > 13
    assert float(returns['blue_0']) < 9


def test_a_wrong_file_is_one_line_and_status_2_and_a_right_one_is_read(tmp_path, capsys):
    path = tmp_path / 'session.yaml'
    for text, message in (
            ('[]', 'is not a mapping'),
            ('{agents: {A: {}}, envs: [{env_id: CartPole-v1}], bodies: [[0, 0, 0]]}',
             "name: 'A' is not allowed"),
            ('{agents: {a: {algoritm: ppo}}, envs: [{}], bodies: [[0, 0, 0]]}',
             "1: agents.a.algoritm: no such setting; did you mean 'algorithm'?"),
            ('{agents: {a: {}, b: {}}, envs: [{env_id: CartPole-v1}], bodies: [[0, 0, 0]]}',
             'bodies: agent b has none'),
            ('{agents: {a: {}}, envs: [{env_id: CartPole-v1, num_envs: 2}], '
             'bodies: [[0, 0, 0]]}', 'num_envs: 2 is not allowed'),
            ('{agents: {a: {}}, envs: [{env_id: CartPole-v1}, {env_id: Acrobot-v1}], '
             'bodies: [[0, 0, 0], [0, 1, 0]]}', 'agent a: environment 1 with .* differs'),
            ('{agents: {a: {algorithm: sac, demonstrations: demos}}, '
             'envs: [{env_id: CartPole-v1}], bodies: [[0, 0, 0]]}',
             'agent a: demonstrations are not allowed with several agents'),
            ('{agents: {a: {}}, envs: [{env_id: test/duel}], bodies: [[0, 0, 0]]}',
             'bodies: 1 are not allowed with env_id test/duel, which has 3: red_0, red_1, '
             'blue_0')):
        path.write_text(text)
        assert multi_agent_training.main([str(path), '--run_dir', str(tmp_path / 'run')]) == 2
        error = capsys.readouterr().err
        assert error.count('\n') == 1, text
        assert re.search(message, error), error
    path.write_text('agents: {a: {algorithm: ppo, learning_rate: 1e-3, init: runs/x}}\n'
                    'envs: [{env_id: CartPole-v1}]\nbodies: [[0, 0, 0]]\n')
    file = read_agents_file(path)
    assert file.agents['a'] == {'algorithm': 'ppo', 'learning_rate': 1e-3, 'init': 'runs/x'}
    assert file.bodies == [(0, 0, 0)]
