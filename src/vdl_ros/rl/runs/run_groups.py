"""Groups of runs to compare: one experiment with several seeds each, labelled by differences."""

from __future__ import annotations

from collections.abc import Sequence

from vdl_ros.rl.runs.recorded_run import RecordedRun, RunReadError

__all__ = ['check_group', 'environments', 'group_labels']

# Settings that identify an experiment; labels show their value without the name.
_IDENTITY = ('env_id', 'algorithm')
# Settings that do not describe the experiment.
_IGNORED = frozenset({
    'seed', 'run_dir', 'resume', 'launch_id', 'checkpoint_period', 'keep_checkpoints',
    'save_replay', 'tracker', 'tracker_project', 'eval_every', 'eval_episodes'})
# Settings of the length of a run; labels use them only if no other setting differs.
_LENGTH = ('total_steps', 'stop_at_return')


def check_group(runs: Sequence[RecordedRun]) -> None:
    """
    Check that the runs of a group are of one experiment.

    Raises:
        RunReadError: a run is given twice, or environments or algorithms differ.
    """
    first, *others = runs
    for index, run in enumerate(others, 1):
        if run.file in {each.file for each in runs[:index]}:
            raise RunReadError(f'{run.path}: given twice in one group')
        for name in _IDENTITY:
            one, other = first.settings.get(name), run.settings.get(name)
            if None not in (one, other) and one != other:
                raise RunReadError(
                    f'{run.path}: {name} {other!r} is not {one!r} as in {first.path}; '
                    f'runs of one group are averaged; use --compare {run.path} for another group')


def environments(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    """Return the known environments of all runs, without duplicates."""
    found = (run.settings.get('env_id') for group in groups for run in group)
    return list(dict.fromkeys(str(env_id) for env_id in found if env_id is not None))


def group_labels(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    """
    Return a distinct label for each group.

    A label has the environment and the algorithm if groups differ in them, then those settings
    that distinguish most groups, until all labels differ; if they do not, the folder. A single
    group is labelled with its algorithm.
    """
    shared = [_shared_settings(group) for group in groups]
    if len(groups) == 1:
        return [str(shared[0].get('algorithm', groups[0][0].path))]
    common = [name for name in shared[0] if all(name in each for each in shared)]
    differing = [name for name in common if len({repr(each[name]) for each in shared}) > 1]
    chosen = [name for name in _IDENTITY if name in differing]

    def num_distinct(names: Sequence[str]) -> int:
        return len({tuple(repr(each[name]) for name in names) for each in shared})

    while num_distinct(chosen) < len(groups):
        # Of equally good settings, the first in config.yaml.
        best = max(differing, default='', key=lambda name: (
            num_distinct([*chosen, name]) > num_distinct(chosen), name not in _LENGTH,
            num_distinct([*chosen, name])))
        if not best or num_distinct([*chosen, best]) == num_distinct(chosen):
            break
        chosen.append(best)
    labels = [', '.join(str(each[name]) if name in _IDENTITY else f'{name} {each[name]}'
                        for name in chosen) for each in shared]
    return [label if label and labels.count(label) == 1
            else ', '.join(filter(None, [label, _folders(group)]))
            for label, group in zip(labels, groups, strict=True)]


def _shared_settings(group: Sequence[RecordedRun]) -> dict[str, object]:
    """Return the settings that all runs of the group have in common."""
    first, *others = (run.settings for run in group)
    return {name: value for name, value in first.items()
            if name not in _IGNORED
            and all(repr(other.get(name)) == repr(value) for other in others)}


def _folders(group: Sequence[RecordedRun]) -> str:
    more = f' and {len(group) - 1} more' if len(group) > 1 else ''
    return f'{group[0].path}{more}'
