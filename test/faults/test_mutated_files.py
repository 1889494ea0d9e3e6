"""Mutated bags, models and checkpoints, read by a process with little memory."""

import contextlib
import io
import zipfile

import pytest
import torch
from fault_children import read_files
from mutations import mutated_bytes, pick
from processes import SERVER
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState

from vdl_ros.pose.estimator import save_model
from vdl_ros.pose.networks import make_model
from vdl_ros.rl.runs.checkpoint import save_checkpoint
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter

pytestmark = pytest.mark.process

LONGEST_S = 1.0  # of processor time, s; beyond what the valid file of a kind takes
#: Safety bound of waiting for a process.
PATIENCE_S = 120.0
VALUES = (None, True, -1, 10**400, 1e300, float('nan'), '', 'two\nlines', 'x' * 5000, b'x', [],
          [1], {}, {1: 2}, (1, 2), torch.ones(()), torch.ones(2), torch.zeros(0),
          torch.full((3, 3), torch.nan), torch.ones(2, dtype=torch.int8))


def make_bags(folder):
    for compression in ('none', 'zstd', 'lz4'):
        bag = folder / compression
        with BagWriter(bag, compression=compression) as writer:
            handle = writer.add_topic('/states', 'sensor_msgs/msg/JointState', [qos.LATCHED])
            for number in range(20):
                writer.write(handle, 1000 + number, serialize_message(
                    JointState(name=['base'] * 5, position=[0.5] * 5)))
        yield next(bag.glob('*.mcap'))


def make_files(folder):
    save_model(folder / 'model.pt', 'resnet', make_model('resnet').state_dict(),
               {'scale': [1.0] * 6, 'threshold': 0.2}, {'steps': 5})
    save_checkpoint(
        folder / 'checkpoint.pt', config={'env_id': 'x', 'seed': 1, 'lr': 0.1},
        learner={'w': torch.arange(50.0), 'b': torch.zeros(3, dtype=torch.int64), 'list': [1]},
        progress={'returns': [1.0, 2.0], 'wall_s': 0.5, 'name': 'x'})
    return {'bag': list(make_bags(folder)), 'model': [folder / 'model.pt'],
            'checkpoint': [folder / 'checkpoint.pt']}


def mutated_archive(data, rng):
    """Return a zip file with right checksums in which one file was mutated."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(found, 'w') as target:
        names = source.namelist()
        pickled = next(each for each in names if each.endswith('data.pkl'))
        changed = pickled if rng.random() < 0.7 else pick(rng, names)
        for name in names:
            content = source.read(name)
            target.writestr(name, mutated_bytes(content, rng) if name == changed else content)
    return found.getvalue()


def mutated_content(data, rng):
    """Return a file of tensors and plain values in which one of these is another."""
    content = torch.load(io.BytesIO(data), weights_only=True)
    within, name = content, pick(rng, list(content))
    while isinstance(within[name], dict) and within[name] and rng.random() < 0.7:
        within = within[name]
        name = pick(rng, list(within))
    within[name] = pick(rng, VALUES)
    found = io.BytesIO()
    torch.save(content, found)
    return found.getvalue()


class Reader:
    """A process that reads files; another one if it has died."""

    def __init__(self, valid):
        self._valid, self._process = valid, None

    def read(self, kind, path):
        """Return how the process read a file; it must not die, and must end."""
        if self._process is None:
            self._connection, other = SERVER.Pipe()
            self._process = SERVER.Process(target=read_files, args=(other, self._valid))
            self._process.start()
            other.close()
        with contextlib.suppress(EOFError, OSError):
            self._connection.send((kind, path))
            if self._connection.poll(PATIENCE_S):
                return self._connection.recv()
        self._process.join(1.0)
        status = self._process.exitcode
        self.close()
        raise AssertionError(f'{kind}: the process that read it ended with status {status}')

    def close(self):
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


@pytest.mark.fault_row(
    'mutated files: bags, models, checkpoints, in a process of 2 GB more than its imports',
    'read, or refused in one line; the process lives', reduced=300, full=3000)
def test_mutated_files_are_read_or_refused_in_one_line(trials, tmp_path):
    files = make_files(tmp_path)
    contents = {kind: [path.read_bytes() for path in paths] for kind, paths in files.items()}
    reader = Reader({kind: paths[0] for kind, paths in files.items()})

    def read(index, rng):
        kind = list(contents)[index % len(contents)]
        data = pick(rng, contents[kind])
        how = mutated_bytes if kind == 'bag' else pick(
            rng, (mutated_bytes, mutated_archive, mutated_content))
        path = tmp_path / 'mutated'
        path.write_bytes(how(data, rng))
        found = reader.read(kind, path)
        assert found['documented'], f'{kind}: {found["error"]}'
        assert '\n' not in found['error'], f'{kind}: {found["error"]}'
        assert found['took'] < LONGEST_S, f'{kind}: {found["took"]:.2f} s'
        return {f'slowest {kind} (ms)': found['took'] * 1e3, 'refused': bool(found['error'])}

    with contextlib.closing(reader):
        trials.run(read)
