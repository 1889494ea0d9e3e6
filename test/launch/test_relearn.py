"""A recorded training is learned again from its bag, and gives the same weights."""

import json

import pytest
import torch
from rosbags.highlevel import AnyReader

from vdl_ros.rl.runs.checkpoint import load_checkpoint


def read(bag):
    """Return the numbers of each actor's trajectories, and the versions of the policies."""
    sequences: dict[tuple[str, int], list[int]] = {}
    versions = []
    with AnyReader([bag]) as reader:
        for connection, _, data in reader.messages():
            if connection.topic == '/trajectories':
                found = reader.deserialize(data, connection.msgtype)
                sequences.setdefault((found.actor_id, found.start_id), []).append(found.sequence)
            elif connection.topic == '/policy':
                versions.append(reader.deserialize(data, connection.msgtype).version)
    return sequences, versions


def load(run):
    """Return a run's summary, and the weights of its checkpoint."""
    return json.loads((run / 'summary.json').read_text()), load_checkpoint(
        run / 'checkpoint.pt')['learner']['policy']


@pytest.mark.slow
def test_a_recorded_training_is_learned_again_to_the_same_weights(launch, tmp_path):
    recorded, again, bag = (tmp_path / name for name in ('recorded', 'again', 'bag'))
    # One actor: of several the learner and the recorder may receive in different orders.
    train = launch.file('train', 'env_id:=CartPole-v1', f'record:={bag}', f'run_dir:={recorded}',
                        'num_actors:=1', 'total_steps:=10000', 'stop_at_return:=1e9')
    train.ends()
    (sequence,), versions = read(bag)[0].values(), read(bag)[1]
    # Whole messages, each once and in its turn, from the first.
    assert sequence == list(range(len(sequence)))
    assert versions
    assert versions == sorted(set(versions))
    replay = launch.file('train', f'bag:={bag}', f'config:={recorded / "config.yaml"}',
                         f'run_dir:={again}')
    replay.ends()
    assert 'trajectories played' in replay.output
    (first, weights), (second, weights_again) = load(recorded), load(again)
    for name in ('ended_by', 'agent_steps', 'updates', 'episodes', 'mean_return_100',
                 'trajectories_received'):
        assert second[name] == first[name], name
    assert second['trajectories_lost'] == second['trajectories_rejected'] == 0
    assert first['updates'] > 5
    assert weights.keys() == weights_again.keys()
    for name, each in weights.items():
        assert torch.equal(each, weights_again[name]), name
