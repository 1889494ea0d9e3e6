"""
The graphs that bench_scaling starts: how many samplers, actors or learners, and what they act in.

**Samplers** (WALL-E). A trajectory is 40 environments of one sampler over T steps, an update
takes 20 of them, and T is chosen so that these are the samples of one iteration: T = 25 for
20,000. So an iteration is one update, of the same batch, however many samplers collect it, and
each of 1, 2, 5, 10, 20 has an equal part in it. An actor may have 20 trajectories under way, the
least that lets one alone fill a batch: one sampler therefore waits for the update, as WALL-E's
do; more of them collect meanwhile. A sleeping environment has observations of the size of
HalfCheetah's, 17 float64, and 37 steps/s, so that one sampler is as fast as WALL-E's one was:
20,000 samples in 14 s.

**Actors** (impala_horovod_gym). Batches as Pong has them here: 16 environments, T = 20, two
trajectories an update. A sleeping environment has observations of the size of Pong's stack, 84 x
84 x 4 bytes, each sent whole (Pong's frames are sent once), and 50 steps/s: an actor delivers at
most 800. The network is an mlp with one 16 wide layer after 28,224 inputs for policy and value
each, whose weights are as large as those of the convolutional one of the IMPALA paper.

**Learners** (impala_horovod_gym). As the actors, with the same number of them for each learner, as
the seed's 45. The network is the actors', so gradients of 3.6 MB are summed, but an actor has four
environments only: all learners learn at the same moment, since a step is made of sums over all,
and the less they compute, the less it is the cores that are measured. With two actors, a learner
that is alone is idle for nine tenths of its time; four of them use less than half of two cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ['ACTORS', 'LEARNERS', 'MOST', 'PER_T', 'SAMPLERS', 'SHAPES', 'Cell', 'Shape', 'asleep',
           'order', 'plan']

# Processes on one host that find each other (config/dds/fastdds.xml.in), less some in reserve.
MOST = 56


@dataclass(frozen=True)
class Shape:
    """
    What one table is measured with.

    Attributes:
        name: of the table.
        sleeping: environment that sleeps.
        computing: environment that computes.
        num_envs: of one process.
        unroll_length: steps of a trajectory; 0: set by the samples of an iteration.
        batch_size: trajectories of an update.
        more: other settings.
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
# Where all start at the same time on few cores, the last learner may be long in coming.
LEARNERS = Shape('learners', 'dummy/OBS28224-FPS50-v0', 'ALE/Pong-v5', 4, 20, 2,
                 ('max_policy_lag:=4', 'hidden_size:=16', 'group_timeout:=600'))
SHAPES = (SAMPLERS, ACTORS, LEARNERS)
# Samples of an iteration for each step of a trajectory.
PER_T = SAMPLERS.num_envs * SAMPLERS.batch_size


@dataclass(frozen=True)
class Cell:
    """One measurement: a table, and how many processes of the kind that it is named after."""

    shape: Shape
    processes: int

    def plan(self, one: Any) -> Any:
        """Return the plan of this run; ``one``: with a single process of that kind."""
        return replace(one, num_actors=self.processes * one.num_actors,
                       num_learners=self.processes if self.shape is LEARNERS else 1)


def asleep(env_id: str) -> bool:
    """Return whether the environment of that name only sleeps; it must exist."""
    from vdl_ros.envs.dummy import NAMESPACE, parse
    if not env_id.startswith(NAMESPACE):
        return False
    dummy = parse(env_id)
    return dummy.step_s > 0 and not dummy.busy


def plan(
    shape: Shape, env_id: str, samples: int, seconds: float, actors: int = 1,
) -> tuple[Any, dict[str, Any]]:
    """
    Return the plan of a table's run with one process, and its settings.

    Args:
        shape: what is measured.
        env_id: environment.
        samples: of an iteration of the samplers.
        seconds: to measure at least.
        actors: processes that collect.

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
    """
    Yield all cells of round ``number``; the tables take turns, and each second round goes back.

    A slow hour of the machine then lies on all tables, and on few and many processes alike.

    Args:
        counts: of processes, by table.
        number: of the round.
    """
    cells = []
    for at in range(max(map(len, counts.values()))):
        cells += [Cell(shape, counts[shape.name][at]) for shape in SHAPES
                  if at < len(counts[shape.name])]
    yield from reversed(cells) if number % 2 else cells
