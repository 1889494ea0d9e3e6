"""An exported policy acts as its checkpoint and describes itself; other files are refused."""

import json
import sys
import threading
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from counters import COUNTER
from onnx import TensorProto, helper
from refusals import refusal
from robot_contract import GOOD

from vdl_ros.common.files import find_resource
from vdl_ros.common.onnx_file import KEY, OnnxFileError
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.owi535.reach import describe
from vdl_ros.envs.registration import REACH
from vdl_ros.play import onnx_export
from vdl_ros.play.onnx_export import ExportError, PolicyGraph, export_policy
from vdl_ros.play.onnx_policy import ActionError, OnnxPolicy, load_onnx_policy
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.rl.policy.policy import choose_precision
from vdl_ros.ros.robots.robot_env import register
from vdl_ros.tools import export_policy as tool

RECURRENT = {'lstm_size': 5, 'last_action_reward': True}
STARTS = {'test/Images-v0': 5, 'test/MixedImages-v0': np.array([4, -1])}


@pytest.mark.parametrize(('env_id', 'train'), [
    (COUNTER, {'algorithm': 'dqn', 'lstm_size': 5}),
    ('Pendulum-v1', {'action_distribution': 'squashed', **RECURRENT}),
    ('Pendulum-v1', {'algorithm': 'bc', 'options': {'chunk': 3}}),
    ('test/MixedImages-v0', {'normalize_observations': True, **RECURRENT}),
    ('test/Images-v0', {'network': 'impala', 'algorithm': 'dqn'}),
    ('test/Images-v0', {'network': 'nature', 'precision': 'bfloat16'}),
    ('test/Images-v0', {'network': 'resnet', 'observation_smoothing': 0.7}),
    ('test/Images-v0', {'network': 'universe', **RECURRENT}),
], ids=str)
def test_it_acts_and_remembers_as_pytorch_does(exported, played, env_id, train):
    checkpoint, path = exported(env_id, **train)
    saved, policy = load_policy(checkpoint), load_onnx_policy(path)
    choose_precision(saved.policy, 'float32')
    act, cells = saved.act(), 2 * saved.train.lstm_size
    distinct = set()
    for observations, resets, rewards in played(saved):
        expected = act(observations, resets, rewards)
        outputs = policy.step(observations, resets, rewards)
        if expected.dtype.kind == 'f':
            np.testing.assert_allclose(outputs.actions, expected, rtol=1e-5, atol=1e-5)
        else:
            # As the environment counts them.
            assert outputs.actions.tolist() == (expected + STARTS.get(env_id, 0)).tolist()
        np.testing.assert_allclose(
            outputs.state[:, :cells], act.state.numpy()[:, :cells], rtol=1e-5, atol=1e-5)
        # Cloning learns no values.
        distinct.update(map(float, outputs.values if outputs.values.any() else outputs.actions))
    # A policy that ignores what it observes would prove nothing.
    assert len(distinct) > 5


def test_the_file_describes_the_policy_of_the_arm(tmp_path):
    path = tmp_path / 'reach.onnx'
    report = export_policy(find_resource('models/reach.pt'), path)
    session = onnxruntime.InferenceSession(path)
    found = json.loads(session.get_modelmeta().custom_metadata_map[KEY])
    assert found['algorithm'] == 'ppo'
    assert found['agent_steps'] == report.saved.agent_steps > 1e6
    assert found['environment'] == {'env_id': REACH}
    assert (found['rate'], found['state']) == (10.0, None)
    assert found['description']['features'] == describe()['features']
    assert found['description']['arm'] == json.loads(json.dumps(report.saved.described['arm']))
    assert found['observation']['inputs'] == [
        {'name': 'observation', 'shape': [59], 'dtype': 'float32'}]
    assert found['action']['sizes'] == [3, 3, 3, 3]
    assert found['action']['choices'] == ['backward', 'off', 'forward']


def test_the_policy_of_a_robot_is_exported_without_the_robot(checkpoint, tmp_path, capsys):
    (tmp_path / 'mine.yaml').write_text(yaml.safe_dump(
        GOOD | {'reward': {'function': 'builtins:max'}}))
    register(EnvModulesConfig(robots=str(tmp_path)), '', threading.Event())
    path = checkpoint('robot/mine', **RECURRENT)
    assert tool.main([str(path), '--robots', str(tmp_path), '--output',
                      str(tmp_path / 'mine.onnx')]) == 0
    assert 'mine.onnx: robot/mine, ppo, 99 steps' in capsys.readouterr().out
    # Speed, its age, and the last two actions.
    assert load_onnx_policy(tmp_path / 'mine.onnx').metadata.observation.inputs[0].shape == (4,)


def test_the_file_describes_parts_range_and_state(exported):
    _, path = exported('test/MixedImages-v0', env={'observe_last_actions': 2}, **RECURRENT)
    found = json.loads(onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map[KEY])
    assert [each['name'] for each in found['observation']['inputs']] == ['image', 'numbers']
    columns = {each['name']: each['size'] for each in found['observation']['columns']}
    assert sum(columns.values()) == found['observation']['inputs'][1]['shape'][0]
    assert columns['last_actions'] == 2 * (3 + 2)
    assert (found['action']['sizes'], found['action']['starts']) == ([3, 2], [4, -1])
    state = found['state']
    assert state['size'] == 2 * 5 + (3 + 2) + 1
    assert state['last_reward_index'] == 15
    assert state['last_action_columns'] == [10, 15]


def test_a_graph_that_differs_from_pytorch_is_not_written(checkpoint, tmp_path, monkeypatch):
    class Wrong(PolicyGraph):
        def __init__(self, *args):
            super().__init__(*args)
            with torch.no_grad():
                self.policy.policy_head.bias += 1e-4

    monkeypatch.setattr(onnx_export, 'PolicyGraph', Wrong)
    with pytest.raises(ExportError, match=r'parameters: differs from PyTorch by 0.0001'):
        export_policy(checkpoint(COUNTER), tmp_path / 'policy.onnx')
    assert not [*tmp_path.glob('*.onnx*')]


def test_what_cannot_be_exported_is_refused_in_one_line(checkpoint, tmp_path, monkeypatch, capsys):
    path = str(checkpoint(COUNTER))
    for missing, output, reason in (
            ('', 'policy.pt', 'policy.pt does not end in .onnx'),
            ('', 'nowhere/policy.onnx', 'No such file or directory'),
            ('onnx', 'policy.onnx', 'onnx is not installed here: pip install onnx onnxruntime'),
            ('onnxruntime', 'policy.onnx',
             'onnxruntime is not installed here: pip install onnx onnxruntime')):
        with monkeypatch.context() as patch:
            if missing:
                patch.setitem(sys.modules, missing, None)
            assert tool.main([path, '--output', str(tmp_path / output), '--env_modules',
                              'absent' if missing else '']) == 2, reason
        found = capsys.readouterr()
        assert found.out == ''
        assert reason in found.err
        assert found.err.count('\n') == 1, reason


@pytest.fixture(scope='module')
def whole(exported):
    """Return the bytes of a policy with a state."""
    return exported(COUNTER, lstm_size=3)[1].read_bytes()


def tensor_in_a_file(tensor, location='/etc/passwd'):
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key='location', value=location)
    return tensor


def hidden(model):
    """External data in the constant of a node."""
    tensor = tensor_in_a_file(helper.make_tensor('hidden', TensorProto.FLOAT, [1], [0.0]), 'a')
    model.graph.node.append(helper.make_node('Constant', [], ['hidden'], value=tensor))


def subgraph(model):
    inner = helper.make_graph([], 'inner', [], [])
    model.graph.node[0].attribute.append(helper.make_attribute('body', inner))


def unknown_input(model):
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value += 1


def not_finite(model):
    for tensor in model.graph.initializer:
        if tensor.name.endswith('policy_head.bias'):
            tensor.CopyFrom(onnx.numpy_helper.from_array(
                np.full(tensor.dims, np.nan, np.float32), tensor.name))


def enormous(model):
    """A value that depends on a tensor of 4 GB, of which the file has only the size."""
    graph = model.graph
    node = next(each for each in graph.node if 'value' in each.output)
    node.output[list(node.output).index('value')] = 'small'
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([10**9]), 'size'))
    graph.node.extend([
        helper.make_node('ConstantOfShape', ['size'], ['large']),
        helper.make_node('ReduceMax', ['large'], ['largest'], keepdims=0),
        helper.make_node('Add', ['small', 'largest'], ['value'])])


def describing(change):
    def changed(model):
        found = json.loads(model.metadata_props[0].value)
        change(found)
        helper.set_model_props(model, {KEY: json.dumps(found)})
    return changed


CHANGES = [
    (lambda model: tensor_in_a_file(model.graph.initializer[0]), 'external data) are not allowed'),
    (hidden, 'external data) are not allowed'),
    (lambda model: setattr(model.graph.node[0], 'domain', 'com.microsoft'),
     "operators of 'com.microsoft' are not allowed"),
    (lambda model: model.opset_import.add(domain='somebody', version=1),
     "operators of 'somebody' are not allowed"),
    (lambda model: setattr(model.graph.node[0], 'op_type', 'Loop'),
     "operator 'Loop' is not allowed"),
    (subgraph, 'subgraphs, sparse tensors and references are not allowed'),
    (lambda model: model.functions.add(name='f', domain='x'),
     'functions and training graphs are not allowed'),
    (unknown_input, 'those of its metadata'),
    (lambda model: model.ClearField('metadata_props'), 'not a file of export_policy'),
    (describing(lambda found: found.update(format=2)), '`int` <= 1 - at `$.format`'),
    (describing(lambda found: found.pop('action')), 'missing required field `action`'),
    (describing(lambda found: found['action'].update(shape=[3])), 'shape (3,) of 1 sizes'),
    (describing(lambda found: found['observation']['inputs'][0].update(shape=[1 << 40])),
     '.shape[0]`'),
    (describing(lambda found: found['state'].update(size=7)), 'those of its metadata'),
    (describing(lambda found: found['state'].update(last_reward_index=99)), 'is not in the state'),
    (enormous, 'smaller than requested bytes of 4000000000'),
    (not_finite, 'observation 0: parameters: not all are finite'),
]


def refused(path, reason):
    line = refusal(OnnxFileError, load_onnx_policy, path)
    assert line.startswith(f'{path}: ')
    assert reason in line


def test_a_changed_file_or_one_of_something_else_is_refused(whole, tmp_path):
    path = tmp_path / 'policy.onnx'
    for change, reason in CHANGES:
        model = onnx.load_model_from_string(whole)
        change(model)
        path.write_bytes(model.SerializeToString())
        refused(path, reason)
    for data in (b'', b'ORTM' + bytes(40), b'\x80\x02}q\x00.', whole[:len(whole) // 2],
                 b'\xff' * 99, whole + whole):
        path.write_bytes(data)
        refused(path, '')
    refused(tmp_path / 'none.onnx', 'no such file')


def test_an_action_outside_of_its_choices_is_no_action(whole, monkeypatch):
    """A graph may answer zeros well and anything else with any number."""
    policy = OnnxPolicy(whole)
    outputs = policy.step(np.zeros((1, 3), np.float32))
    for wrong, reason in (
            (outputs._replace(actions=np.array([2])), r'actions: \[2\] are not within \[2\]'),
            (outputs._replace(actions=np.array([0.0])), r'actions: float64 \[1\] is not int64'),
            (outputs._replace(values=np.zeros(2, np.float32)), r'values: float32 \[2\] is not ')):
        session = SimpleNamespace(run=lambda names, inputs, found=wrong: list(found))
        monkeypatch.setattr(policy, '_session', session)
        with pytest.raises(ActionError, match=reason):
            policy(np.zeros((1, 3), np.float32))
