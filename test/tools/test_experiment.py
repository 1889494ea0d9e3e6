"""The command experiment with short trainings: modes, results, bad input."""

import csv
import json

import pytest
import yaml
from conftest import Run

from vdl_ros.common.plain_yaml import dump_yaml
from vdl_ros.experiments import modes
from vdl_ros.tools import experiment

AGENT = {'algorithm': 'a3c', 'hidden_size': 8, 'total_steps': 4000,
         'stop_at_return': 'never', 'unroll_length': 10}
ENV = {'env_id': 'CartPole-v1', 'num_envs': 4}
SPACES = {'agent': {'learning_rate': {'low': 1e-4, 'high': 1e-2, 'log': True},
                    'entropy_cost': [0.0, 0.01]}}
SPECS = {
    'searched': {'description': 'Two <settings>.', 'agent': AGENT, 'env': ENV,
                 'meta': {'sessions': 1, 'trials': 2},
                 'search': {'sampler': 'random', **SPACES}},
    'trained': {'agent': AGENT, 'env': ENV, 'meta': {'sessions': 2}},
    'failing': {'agent': AGENT, 'env': {**ENV, 'env_kwargs': {'odd': 1}},
                'meta': {'sessions': 1, 'trials': 2},
                'search': {'sampler': 'grid', 'agent': {'batch_size': [1, 2]}}},
    'half': {'agent': {**AGENT, 'publish_every': 2, 'max_in_flight': 2, 'stop_at_return': 9.0},
             'env': ENV, 'meta': {'sessions': 1},
             'search': {'sampler': 'grid', 'agent': {'batch_size': [1, 2]}}},
}


@pytest.fixture
def specs(tmp_path, monkeypatch):
    """Be in a folder with a file of specs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / 'some.yaml'
    path.write_text(dump_yaml(SPECS))
    return path


def trial_values(folder):
    """Return the values of each trial that is in the table of an experiment, by number."""
    with (folder / 'experiment_df.csv').open() as file:
        rows = list(csv.DictReader(file))
    return {int(row['trial']): {name: row[name] for name in row if name in (
        'learning_rate', 'entropy_cost')} for row in rows}


def test_a_search_writes_its_files_and_a_page_that_needs_no_network(specs, capsys):
    command = ['some.yaml', 'searched', '--mode', 'search', '--jobs', '2']
    assert experiment.main(command) == 0
    folder = specs.parent / 'runs' / 'some' / 'searched' / 'search'
    summary = json.loads((folder / 'experiment.json').read_text())
    assert summary['complete']
    assert summary['trials'] == {'complete': 2, 'pruned': 0, 'failed': 0}
    values = trial_values(folder)
    assert sorted(values) == [0, 1]
    assert len({each['learning_rate'] for each in values.values()}) == 2
    trial = json.loads((folder / 'trial-0' / 'trial_data.json').read_text())
    session, = trial['sessions']
    assert session['seed'] == 1
    assert '--seed 1' in session['command']
    assert session['episodes'] > 50
    assert (folder / 'experiment_graph.png').read_bytes().startswith(b'\x89PNG')
    assert list(yaml.safe_load((folder / 'spec.yaml').read_text())) == ['searched']
    page = (folder / 'index.html').read_text()
    assert 'Two &lt;settings&gt;.' in page
    assert page.count('data:image/') == 2
    assert f'class=best><td>{summary["best"]["trial"]}</td>' in page
    # Its command where the mouse rests, and below.
    assert page.count('--seed 1') == 4
    assert not any(word in page for word in ('http://', 'https://', '<script', str(specs.parent)))
    # The same command finds all of it complete, and enjoy the best of it.
    capsys.readouterr()
    assert experiment.main(command) == 0
    assert '\ntrial 0:' not in capsys.readouterr().out
    assert experiment.main(['some.yaml', 'searched', '--mode', 'enjoy', '--at', str(folder)]) == 0
    best = folder / f'trial-{summary["best"]["trial"]}'
    assert [each.stat().st_size > 1000 for each in best.glob('*/enjoy.mp4')] == [True]


@pytest.mark.slow
def test_a_training_is_resumed_and_a_benchmark_leaves_out_what_has_results(specs, capsys):
    assert experiment.main(['some.yaml', 'trained', '--sessions', '1']) == 0
    content = yaml.safe_load(specs.read_text())
    content['trained']['agent']['total_steps'] = 6000
    specs.write_text(yaml.safe_dump({'trained': content['trained']}))
    assert experiment.main(['some.yaml', 'trained']) == 0
    folder = specs.parent / 'runs' / 'some' / 'trained' / 'train' / 'trial-0'
    assert all(Run(folder / f'session-{n}').summary['agent_steps'] >= 6000 for n in range(2))
    assert 'resume' not in capsys.readouterr().err
    assert experiment.main(['some.yaml', '--mode', 'benchmark']) == 0
    has_results, *table = capsys.readouterr().out.splitlines()
    assert has_results.startswith('trained: has results in ')
    row, = json.loads((specs.parent / 'runs/some/benchmark.json').read_text())
    data = json.loads((folder / 'trial_data.json').read_text())
    assert row['returns'] == [each['final_return'] for each in data['sessions']]
    assert row['fitness'] == data['fitness']
    # No session of so few steps reaches the standard return.
    assert row['steps'] == [None] * 2
    assert table[2].startswith('| CartPole-v1 | `a3c` |')
    content['trained']['agent']['total_steps'] = 7000
    specs.write_text(yaml.safe_dump({'trained': content['trained']}))
    assert experiment.main(['some.yaml', '--mode', 'benchmark']) == 0
    assert all(Run(folder / f'session-{n}').summary['agent_steps'] >= 7000 for n in range(2))
    content['trained']['agent']['hidden_size'] = 16
    specs.write_text(yaml.safe_dump({'trained': content['trained']}))
    assert experiment.main(['some.yaml', 'trained']) == 2
    assert 'the spec has changed' in capsys.readouterr().err


def test_a_trial_that_fails_is_named_with_its_log_and_the_search_goes_on(specs, capsys):
    # batch_size 2 contradicts the other settings.
    assert experiment.main(['some.yaml', 'half', '--mode', 'search']) == 0
    folder = specs.parent / 'runs' / 'some' / 'half' / 'search'
    summary = json.loads((folder / 'experiment.json').read_text())
    assert summary['trials'] == {'complete': 1, 'pruned': 0, 'failed': 1}
    output = capsys.readouterr().out
    assert f'; see {folder}/trial-' in output
    assert 'half: 1 runs ended by stop_at_return, before their total_steps' in output
    # If all fail, nothing has come of it.
    assert experiment.main(['some.yaml', 'failing', '--mode', 'search', '--trials', '1',
                            '--env_modules', 'missing']) == 1


def test_a_short_trial_is_long_enough_to_learn_from_a_replay():
    for algorithm in ('dqn', 'sac'):
        assert modes._short({'env_id': 'CartPole-v1', 'algorithm': algorithm,
                             'replay_start': 9000})['total_steps'] == 18_000


@pytest.mark.slow
def test_dev_is_two_short_trials(specs):
    folder = specs.parent / 'runs' / 'some' / 'searched' / 'dev'
    # Of an earlier time.
    (folder / 'trial-7').mkdir(parents=True)
    assert experiment.main(['some.yaml', 'searched', '--mode', 'dev']) == 0
    assert sorted(each.name for each in folder.glob('trial-*')) == ['trial-0', 'trial-1']
    assert [each.name for each in folder.glob('trial-*/session-*/')] == ['session-0', 'session-0']


def test_bad_input_is_one_line_for_each_fault_and_status_2(specs, capsys):
    for arguments, message in (
            ([], 'one of FILE and --check is needed'),
            (['some.yaml'], 'some.yaml: the name of a spec is missing; there is '),
            (['some.yaml', 'serched', '--env_modules', 'own'],
             "some.yaml: no spec 'serched'; did you mean 'searched'?"),
            (['some.yaml', 'trained', '--mode', 'search'], 'some.yaml: trained: has no search'),
            (['some.yaml', 'trained', '--mode', 'enjoy', '--at', 'x'],
             '--at: x holds no checkpoint.pt'),
            (['some.yaml', 'searched', '--mode', 'search', '--storage', 'sqlite:////none/a.db'],
             '--storage: sqlite:////none/a.db cannot be used: ')):
        try:
            status = experiment.main(arguments)
        except SystemExit as ended:
            status = ended.code
        assert status == 2, message
        line, = capsys.readouterr().err.splitlines()
        assert line.startswith(f'experiment: {message}')


def test_no_name_in_results_or_of_a_spec_leads_out_of_their_folder(specs, capsys):
    at = specs.parent / 'at'
    at.mkdir()
    for name, content, value in (
            ('experiment.json', {'best': {'trial': '../../run'}}, "best: trial: '../../run'"),
            ('trial_data.json', {'sessions': [{'folder': '../run', 'final_return': 1.0}]},
             "sessions[0]: folder: '../run'")):
        (at / name).write_text(json.dumps(content))
        assert experiment.main(['some.yaml', 'trained', '--mode', 'enjoy', '--at', 'at']) == 2
        assert capsys.readouterr().err.startswith(
            f'experiment: at/{name}: {value} is not allowed: ')
        (at / name).unlink()
    specs.write_text('../../run: {agent: {algorithm: ppo}, env: {env_id: CartPole-v1}}\n')
    assert experiment.main(['some.yaml', '../../run']) == 2
    assert 'some.yaml:1: ../../run: is not the name of a folder' in capsys.readouterr().err
