"""Files that are no policy of this program are refused, in one line, before they are run."""

import json
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from vdl_ros.envs.dummy import COUNTER
from vdl_ros.play.onnx_policy import KEY, ActionError, OnnxFileError, OnnxPolicy, load_onnx_policy


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
    (lambda model: model.ClearField('metadata_props'), 'it does not describe a policy'),
    (describing(lambda found: found.update(format=2)), '`int` <= 1 - at `$.format`'),
    (describing(lambda found: found.pop('action')), 'missing required field `action`'),
    (describing(lambda found: found['action'].update(shape=[3])), 'shape (3,) of 1 sizes'),
    (describing(lambda found: found['observation']['inputs'][0].update(shape=[1 << 40])),
     '.shape[0]`'),
    (describing(lambda found: found['state'].update(size=7)), 'those of its metadata'),
    (describing(lambda found: found['state'].update(last_reward_index=99)), 'is not in the state'),
    (not_finite, 'observation 0: parameters: not all are finite'),
]


def refused(path, reason):
    with pytest.raises(OnnxFileError) as error:
        load_onnx_policy(path)
    assert str(error.value).startswith(f'{path}: ')
    assert reason in str(error.value)
    assert '\n' not in str(error.value)


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
