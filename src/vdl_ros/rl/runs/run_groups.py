"""Groups of runs to compare: each is one experiment with several seeds, named by what differs."""

from __future__ import annotations

from collections.abc import Sequence

from vdl_ros.rl.runs.run_series import RecordedRun, RunReadError

__all__ = ['check_group', 'environments', 'group_labels']

# What says which experiment a run is of: shown by its value alone, whenever it differs.
_WHAT = ('env_id', 'algorithm')
# Settings that say nothing of the experiment.
_NOT_TELLING = frozenset({'seed', 'run_dir', 'resume', 'launch_id', 'checkpoint_period'})
# Settings that say only how long a run may go on: named where nothing else tells groups apart.
_LENGTH = ('total_steps', 'stop_at_return')


def check_group(runs: Sequence[RecordedRun]) -> None:
    """
    Refuse a group whose mean would mean nothing.

    Raises:
        RunReadError: a run is there twice, or its environment or algorithm is not the first's.
    """
    first, *others = runs
    for index, run in enumerate(others, 1):
        if run.file in {each.file for each in runs[:index]}:
            raise RunReadError(f'{run.path}: is given twice in one group')
        for name in _WHAT:
            one, other = first.settings.get(name), run.settings.get(name)
            if None not in (one, other) and one != other:
                raise RunReadError(
                    f'{run.path}: {name} {other!r} is not {one!r} as in {first.path}; '
                    f'runs of one group are averaged: --compare {run.path} keeps it apart')


def environments(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    """Return the environments of all runs, as far as they are known, each once."""
    found = (run.settings.get('env_id') for group in groups for run in group)
    return list(dict.fromkeys(str(env_id) for env_id in found if env_id is not None))


def group_labels(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    """
    Return what each group is called, all different.

    Environment and algorithm are named where groups differ in them; then other settings, the most
    telling first, until each group is told from each other; where that does not suffice, folders.
    One group alone is called by its algorithm.
    """
    shared = [_shared_settings(group) for group in groups]
    if len(groups) == 1:
        return [str(shared[0].get('algorithm', groups[0][0].path))]
    common = [name for name in shared[0] if all(name in each for each in shared)]
    differing = [name for name in common if len({repr(each[name]) for each in shared}) > 1]
    chosen = [name for name in _WHAT if name in differing]

    def told_apart(names: Sequence[str]) -> int:
        return len({tuple(repr(each[name]) for name in names) for each in shared})

    while told_apart(chosen) < len(groups):
        # Of those that tell as much, the first in the order of config.yaml.
        best = max(differing, default='', key=lambda name: (
            told_apart([*chosen, name]) > told_apart(chosen), name not in _LENGTH,
            told_apart([*chosen, name])))
        if not best or told_apart([*chosen, best]) == told_apart(chosen):
            break
        chosen.append(best)
    labels = [', '.join(str(each[name]) if name in _WHAT else f'{name} {each[name]}'
                        for name in chosen) for each in shared]
    return [label if label and labels.count(label) == 1
            else ', '.join(filter(None, [label, _folders(group)]))
            for label, group in zip(labels, groups, strict=True)]


def _shared_settings(group: Sequence[RecordedRun]) -> dict[str, object]:
    """Return the settings that all runs of the group have in common."""
    first, *others = (run.settings for run in group)
    return {name: value for name, value in first.items()
            if name not in _NOT_TELLING
            and all(repr(other.get(name)) == repr(value) for other in others)}


def _folders(group: Sequence[RecordedRun]) -> str:
    more = f' and {len(group) - 1} more' if len(group) > 1 else ''
    return f'{group[0].path}{more}'
