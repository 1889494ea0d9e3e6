"""The checker of specs: every fault with its line and a suggestion; none in those of here."""

from pathlib import Path
from types import SimpleNamespace

from vdl_ros.envs import worlds
from vdl_ros.experiments.checker import read_specs
from vdl_ros.tools import experiment

ROOT = Path(__file__).resolve().parents[2]

WRONG = '''
first:
  agent: {algorithm: dqn, learning_rat: 0.1, hidden_size: 0}
  env:
    env_id: CartPole-v1
    num_envs: 8
  body: {product: outer, num: 4}
  search:
    agent:
      learning_rate: [0.1]
      hidden_size: [16, 32]
      ppo_clip: {low: 0.1, high: 0.3}
  env: {env_id: CartPole-v1, num_envs: 8}
second:
  env: {env_id: CartPole-v1, env_modules: walk}
  meta: {sesions: 2}
third:
  agent: {algorithm: dqn, replay_size: 10, replay_start: 20}
  env: {env_id: CartPole-v1}
  reference: {random_return: 5, standard_return: 5}
  search:
    sampler: grid
    agent: {discount: {low: 0.9, high: 0.99}}
'''
FAULTS = [
    (3, "first.agent.learning_rat: no such setting; did you mean 'learning_rate'?"),
    (3, 'first.agent.hidden_size: 0 is not allowed: a whole number from 1 to 4096'),
    (7, 'first.body: 4 bodies contradict env.num_envs, 8: say one of them'),
    (8, 'first.search: a search by tpe needs a budget: meta.trials is missing'),
    (10, 'first.search.agent.learning_rate: [0.1] has one value: a space has several; a single '
         'value belongs to agent or env'),
    (12, "first.search.agent.ppo_clip: {'low': 0.1, 'high': 0.3} is of algorithm 'ppo', and "
         "algorithm is 'dqn'"),
    (13, 'first.env: is there twice; first in line 4'),
    (14, 'second.agent: is missing'),
    (15, 'second.env.env_modules: no such setting: it is the option --env_modules'),
    (16, "second.meta.sesions: no such setting; did you mean 'sessions'?"),
    (18, 'third.agent.unroll_length: 20 is not allowed: at most replay_size, 10'),
    (20, 'third.reference.standard_return: 5 is not allowed: above random_return, 5'),
    (21, 'third.search: a grid needs choices, not ranges: [value, value]'),
]


def test_every_fault_of_a_file_is_named_with_its_line_and_status_2(tmp_path, capsys):
    path = tmp_path / 'wrong.yaml'
    path.write_text(WRONG)
    other = tmp_path / 'other.yaml'
    other.write_text('one: [1, 2\n')
    assert experiment.main(['--check', str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith(str(path))] == [
        f'{path}:{line}: {text}' for line, text in FAULTS]
    assert any(line.startswith(f'{other}:2: not YAML: ') for line in lines)


def test_the_shipped_specs_have_no_fault():
    assert experiment.main(['--check', str(ROOT / 'specs')]) == 0


def test_a_package_that_is_not_installed_is_no_fault_of_a_file(monkeypatch, capsys):
    def import_module(name):
        raise ModuleNotFoundError(name='mpe2')

    monkeypatch.setattr(worlds, 'importlib', SimpleNamespace(import_module=import_module))
    path = ROOT / 'specs' / 'agents.yaml'
    assert experiment.main(['--check', str(path)]) == 0
    line, = capsys.readouterr().err.splitlines()
    assert 'mpe2 is not installed: pip install' in line
    assert line.endswith('; not checked')
    # A run needs it.
    assert experiment.main([str(path), 'push']) == 2


SEVERAL_WRONG = '''
world:
  agent:
    - {algorithm: ppo, name: chaser}
    - {algorithm: ppo, name: prey}
  env: {env_id: mpe2/simple_tag_v3, num_envs: 4}
  body: {product: outer, num: 1}
copies:
  agent: [{algorithm: ppo}, {algorithm: dqn, ppo_clip: 0.1}]
  env: {env_id: CartPole-v1, num_envs: 4}
  body: {num: 6}
unused:
  agent: [{algorithm: ppo}, {algorithm: dqn, discont: 0.9}]
  env: [{env_id: CartPole-v1}, {env_id: Acrobot-v1}]
settings:
  agent: [{algorithm: ppo}, {algorithm: dqn, ppo_clip: 0.1}]
  env: {env_id: CartPole-v1}
custom:
  agent: [{algorithm: ppo}, {algorithm: dqn, name: agent_0}]
  env: {env_id: CartPole-v1}
  body: {product: custom, num: [[0, 0, 0]]}
one:
  agent: {algorithm: ppo}
  env: {env_id: mpe2/simple_push_v3, bodies: agent_0}
  body: {num: 2}
'''
SEVERAL_FAULTS = [
    (7, 'world.body.bodies: 2 are not allowed with env_id mpe2/simple_tag_v3, which has 4: '
        'adversary_0, adversary_1, adversary_2, agent_0'),
    (11, 'copies.body.num_envs: 4 is not allowed with env_id CartPole-v1: bodies are the copies '
         'of an environment'),
    (13, "unused.agent.1.discont: no such setting; did you mean 'discount'?"),
    (16, "settings.agent.1.ppo_clip: 0.1 is of algorithm 'ppo', and algorithm is 'dqn'"),
    (21, 'custom.body.name: agent_0 is the name of two agents'),
    (25, 'one.body.bodies: 2 are not allowed with env_id mpe2/simple_push_v3, which has 1: '
         'agent_0'),
]


def test_bodies_that_contradict_agents_environments_or_a_world_are_named(tmp_path):
    path = tmp_path / 'wrong.yaml'
    path.write_text(SEVERAL_WRONG)
    _, faults = read_specs(path)
    assert [(fault.line, fault.text) for fault in faults] == SEVERAL_FAULTS


def test_lists_of_agents_and_environments_become_bodies():
    specs, _ = read_specs(ROOT / 'specs' / 'agents.yaml')
    counts = {name: [[spec.agents.count(agent, env) for env in range(len(spec.agents.envs))]
                     for agent in range(len(spec.agents.agents))]
              for name, spec in specs.items() if spec.agents}
    assert counts == {
        'multi_agent': [[6], [6]], 'multi_agent_multi_env': [[1, 1], [1, 1]],
        'inner': [[4, 0], [0, 4]], 'custom': [[1, 12]], 'push': [[1], [1]]}
    assert specs['push_self_play'].agents is None
    # Bodies of one agent are copies of the environment.
    specs, _ = read_specs(ROOT / 'specs' / 'cartpole.yaml')
    assert specs['multi_body'].settings['num_envs'] == 12
