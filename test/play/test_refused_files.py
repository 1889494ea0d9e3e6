"""Files that are no policy of this program are refused, in one line, before they are run."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from vdl_ros.envs.dummy import COUNTER
from vdl_ros.play.onnx_policy import KEY, ActionError, OnnxFileError, load_onnx_policy


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


def test_an_action_outside_of_its_choices_is_no_action(whole, tmp_path):
    """A graph may answer zeros well and anything else with any number."""
    model, path = onnx.load_model_from_string(whole), tmp_path / 'policy.onnx'
    found = json.loads(model.metadata_props[0].value)
    (observation,) = found['observation']['inputs']
    graph = model.graph
    last = next(node for node in graph.node if 'action' in node.output)
    last.output[0] = 'chosen'
    # The action grows with the first number of the observation.
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), 'first'))
    graph.node.extend([
        helper.make_node('Flatten', ['observation'], ['flat'], axis=1),
        helper.make_node('Gather', ['flat', 'first'], ['column'], axis=1),
        helper.make_node('Cast', ['column'], ['whole'], to=TensorProto.INT64),
        helper.make_node('Flatten', ['whole'], ['rows'], axis=1),
        helper.make_node('Squeeze', ['rows', 'axis'], ['more']),
        helper.make_node('Add', ['chosen', 'more'], ['action'])])
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), 'axis'))
    path.write_bytes(model.SerializeToString())
    policy = load_onnx_policy(path)
    with pytest.raises(ActionError, match=r'actions: \[\d+\] are not within'):
        policy(np.full((1, *observation['shape']), 90, observation['dtype']))
