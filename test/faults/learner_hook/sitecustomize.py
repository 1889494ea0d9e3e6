"""Make a learner fail in a phase, and write a digest of its weights after every update.

Python imports this file in processes that have its folder in PYTHONPATH; what is wrapped are the
functions that mark the phases. ``test_killed_learners.py`` sets the environment variables.
"""

import functools
import hashlib
import importlib.abc
import importlib.util
import os
import signal
import sys

#: Class, method and number of the call at which a phase is reached.
PHASES = {
    'joining': ('vdl_ros.rl.distributed.process_group', 'ProcessGroup', '__init__', 1),
    'sharing the state': ('vdl_ros.rl.distributed.process_group', 'ProcessGroup', 'broadcast', 2),
    'collecting': ('vdl_ros.ros.training.messages', 'TrajectoryInbox', 'get', 100),
    'updating': ('vdl_ros.rl.distributed.process_group', 'ProcessGroup', 'all_reduce_gradients',
                 50),
}
LEARNER = 'vdl_ros.rl.learning.learner', 'Learner', 'learn'


def fail(how, rank, marker):
    """Send this process a signal if it is the learner of that rank, once in all."""
    if f'__node:=learner_{rank}' not in sys.argv:
        return
    try:
        os.mkdir(marker)
    except FileExistsError:
        return
    os.kill(os.getpid(), getattr(signal, f'SIG{how}'))


def before_call(cls, name, number, do):
    original, calls = getattr(cls, name), [0]

    @functools.wraps(original)
    def call(*args, **options):
        calls[0] += 1
        if calls[0] == number:
            do()
        return original(*args, **options)

    setattr(cls, name, call)


def write_digests(cls, name, path):
    original = getattr(cls, name)

    @functools.wraps(original)
    def call(learner, *args, **options):
        found = original(learner, *args, **options)
        digest = hashlib.sha256(b''.join(
            each.tobytes() for each in learner.weights().values())).hexdigest()
        with open(path, 'a') as file:
            file.write(f'{os.getpid()} {learner.group.rank} {learner.version} {digest}\n')
        return found

    setattr(cls, name, call)


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls functions with a module after its import."""

    def __init__(self, functions):
        self.functions = functions

    def find_spec(self, name, path=None, target=None):
        do = self.functions.pop(name, None)
        if do is None:
            return None
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            do(module)

        spec.loader.exec_module = exec_module
        return spec


if 'FAULT' in os.environ:
    how, phase, rank, folder = os.environ['FAULT'].split(',')
    module, cls, name, number = PHASES[phase]
    sys.meta_path.insert(0, AfterImport({
        module: lambda found: before_call(
            getattr(found, cls), name, number,
            lambda: fail(how, rank, os.path.join(folder, 'failed'))),
        LEARNER[0]: lambda found: write_digests(
            getattr(found, LEARNER[1]), LEARNER[2], os.path.join(folder, 'digests.txt'))}))
