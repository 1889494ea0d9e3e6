"""An experiment of several agents: interrupted, gone on with, scored by agent."""

import json

import pytest
import yaml

from vdl_ros.experiments.checker import read_specs
from vdl_ros.experiments.trials import TrialRunner
from vdl_ros.tools import experiment

PPO = {'algorithm': 'ppo', 'unroll_length': 10, 'batch_size': 1, 'total_steps': 6000}
SPEC = {
    'agent': [{**PPO, 'name': 'pusher'}, {**PPO, 'name': 'runner', 'algorithm': 'impala'}],
    'env': {'env_id': 'mpe2/simple_push_v3', 'num_envs': 4},
    'reference': {'random_return': -30, 'standard_return': 0}, 'meta': {'sessions': 1}}


@pytest.mark.slow
@pytest.mark.process
def test_an_interrupted_session_of_agents_goes_on_and_each_agent_is_scored(tmp_path):
    file = tmp_path / 'file.yaml'
    file.write_text(yaml.safe_dump({'one': SPEC}))
    specs, faults = read_specs(file)
    assert not faults
    folder = tmp_path / 'runs' / 'file' / 'one' / 'train'
    session, = TrialRunner(specs['one'], folder).sessions(0, {})

    def rows(run):
        path = run.folder / 'progress.csv'
        return len(path.read_text().splitlines()) if path.is_file() else 0

    assert session.run(lambda: all(rows(run) > 2 for run in session.runs)) is None
    assert session.is_begun
    assert session.summary() is None
    before = [json.loads((run.folder / 'summary.json').read_text()) for run in session.runs]
    assert [each['ended_by'] for each in before] == ['interrupted'] * 2
    assert experiment.main([str(file), 'one', '--output', str(tmp_path / 'runs')]) == 0
    found = json.loads((folder / 'trial-0' / 'trial_data.json').read_text())
    assert [each['folder'] for each in found['sessions']] == [
        'session-0/pusher', 'session-0/runner']
    for each, was in zip(found['sessions'], before, strict=True):
        assert each['agent_steps'] >= 6000 > was['agent_steps'] > 0
        assert each['episodes'] >= 100
    strengths = [each['strength'] for each in found['sessions']]
    assert min(strengths) < found['strength'] < max(strengths)
    page = (folder / 'index.html').read_text()
    assert 'pusher (ppo), runner (impala) in mpe2/simple_push_v3' in page
