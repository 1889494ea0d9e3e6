"""Runs of bench_scaling: environments, batches and numbers of samplers, actors and learners.

**Samplers** (WALL-E). A trajectory has 40 environments of one sampler over T steps, an update 20
trajectories, and T gives the samples of one iteration: T = 25 for 20,000. So an iteration is one
update of the same batch, shared equally by 1, 2, 5, 10 or 20 samplers. An actor may have 20
trajectories under way, which lets one alone fill a batch: one sampler therefore waits for the
update, as WALL-E's do; more samplers collect meanwhile. A sleeping environment has observations
of the size of HalfCheetah's, 17 float64, and 37 steps/s, so that one sampler is as fast as
WALL-E's: 20,000 samples in 14 s.

**Actors** (impala_horovod_gym). Batches are those of Pong here: 16 environments, T = 20, two
trajectories an update. A sleeping environment has observations of the size of Pong's stack, 84 x
84 x 4 bytes, each sent whole (Pong's frames are sent once), and 50 steps/s: an actor delivers at
most 800. The network is an mlp with one layer of 16 after 28,224 inputs for policy and value
each; its weights are as large as those of the convolutional network of the IMPALA paper.

**Learners** (impala_horovod_gym). Each learner has the same number of actors. The network is that
of the actors, so gradients of 3.6 MB are summed, but an actor has only four environments: all
learners learn at the same moment, and the less they compute, the less the cores limit the result.
With two actors, one learner is idle for nine tenths of its time; four of them use less than half
of two cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ['ACTORS', 'LEARNERS', 'MOST', 'PER_T', 'SAMPLERS', 'SHAPES', 'Cell', 'Shape', 'asleep',
           'order', 'plan']

# Processes that find each other on one host (config/dds/fastdds.xml.in), less a reserve.
MOST = 56


@dataclass(frozen=True)
class Shape:
    """Settings of one table.

    Attributes:
        unroll_length: steps of a trajectory; 0: set by the samples of an iteration.
    """

    name: str
    sleeping: str
    computing: str
    num_envs: int
    unroll_length: int
    batch_size: int
    more: tuple[str, ...]


SAMPLERS = Shape('samplers', 'dummy/OBS136-FPS37-v0', 'HalfCheetah-v5', 40, 0, 20,
                 ('max_policy_lag:=20',))
ACTORS = Shape('actors', 'dummy/OBS28224-FPS50-v0', 'ALE/Pong-v5', 16, 20, 2,
               ('max_policy_lag:=4', 'hidden_size:=16'))
# With many processes on few cores, the last learner may start late.
LEARNERS = Shape('learners', 'dummy/OBS28224-FPS50-v0', 'ALE/Pong-v5', 4, 20, 2,
                 ('max_policy_lag:=4', 'hidden_size:=16', 'group_timeout:=600'))
SHAPES = (SAMPLERS, ACTORS, LEARNERS)
# Samples of an iteration for each step of a trajectory.
PER_T = SAMPLERS.num_envs * SAMPLERS.batch_size


@dataclass(frozen=True)
class Cell:
    """One measurement: a table, and a number of its samplers, actors or learners."""

    shape: Shape
    processes: int

    def plan(self, one: Any) -> Any:
        """Return the plan of this run; ``one``: with a single process of that kind."""
        return replace(one, num_actors=self.processes * one.num_actors,
                       num_learners=self.processes if self.shape is LEARNERS else 1)


def asleep(env_id: str) -> bool:
    """Return whether an existing environment only sleeps."""
    from vdl_ros.envs.dummy import NAMESPACE, parse
    if not env_id.startswith(NAMESPACE):
        return False
    dummy = parse(env_id)
    return dummy.step_s > 0 and not dummy.busy


def plan(
    shape: Shape, env_id: str, samples: int, seconds: float, actors: int = 1,
) -> tuple[Any, dict[str, Any]]:
    """Return the plan of a table's run with one process, and its settings.

    Args:
        seconds: of the measurement at least.

    Raises:
        ValueError: a setting that is not allowed, in one line.
    """
    from benchmarks.bench_train import arguments
    words = ['--env', env_id, '--num-envs', str(shape.num_envs), '--unroll-length',
             str(shape.unroll_length or samples // PER_T), '--batch-size', str(shape.batch_size),
             '--num-actors', str(actors), '--seconds', str(seconds)]
    for setting in shape.more:
        words += ['--set', setting]
    _, made, settings = arguments(words)
    return made, settings


def order(counts: Mapping[str, Sequence[int]], number: int) -> Iterator[Cell]:
    """Yield all cells of round ``number``; the tables take turns, every second round is reversed.

    So a slow phase of the machine affects all tables, and few and many processes alike.

    Args:
        counts: of processes, by table.
    """
    cells = []
    for at in range(max(map(len, counts.values()))):
        cells += [Cell(shape, counts[shape.name][at]) for shape in SHAPES
                  if at < len(counts[shape.name])]
    yield from reversed(cells) if number % 2 else cells
