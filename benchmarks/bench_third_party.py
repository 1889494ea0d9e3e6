"""Environments of other packages: each installed apart, trained by one command for a while.

Prints the return at the end beside that of random actions, with versions and commands; those that
cannot be trained with the reason. benchmarks/third_party/environments.yaml lists them. The first
call installs them by pip, into virtual environments that lie above this one's packages.
"""

import argparse
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from benchmarks import report
from benchmarks.peers.peers import install

LIST = Path(__file__).parent / 'third_party' / 'environments.yaml'
LAUNCH = 'ros2 launch vdl_ros train.launch.py'
# Until the first update, of random actions, and of a process that only reads versions, s.
_START_S, _RANDOM_S, _VERSIONS_S = 180.0, 20.0, 60.0


def listed() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(LIST.read_text(encoding='utf-8'))
    return found


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = report.Parser('bench_third_party', __doc__, 'seconds instead of a minute each')
    parser.add_argument('--names', nargs='*', choices=listed(), default=list(listed()),
                        metavar='NAME', help='names of the list (all), or none; the results of '
                        'others that are in the file of --output stay there')
    parser.add_argument('--folder', type=Path, metavar='FOLDER',
                        default=Path.home() / '.cache' / 'vdl_ros' / 'third_party',
                        help='virtual environments (~/.cache/vdl_ros/third_party)')
    parser.number('--seconds', float, 'of each training after its first update', (60.0, 5.0),
                  (1, 86400))
    return parser.complete(words)


def settings(entry: Mapping[str, Any]) -> dict[str, str]:
    given = {'env_modules': entry.get('env_modules'), 'env_id': entry['env_id'],
             **entry.get('settings', {})}
    return {name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in given.items() if value is not None}


def command(entry: Mapping[str, Any]) -> str:
    """Return the command of a training, as it is typed."""
    variables = [f'{name}={value}' for name, value in entry.get('variables', {}).items()]
    words = [f'{name}:={shlex.quote(value)}' for name, value in settings(entry).items()]
    return ' '.join([*variables, LAUNCH, *words])


def measure(entry: Mapping[str, Any], folder: Path, seconds: float) -> dict[str, Any]:
    """Install an environment and train in it.

    Returns:
        Versions, command, day and load; steps, seconds, episodes and return of the training, and
        return of random actions; or ``reason``, why it cannot be trained.
    """
    found: dict[str, Any] = {
        **{key: entry[key] for key in ('install', 'note') if key in entry},
        'command': command(entry), 'date': date.today().isoformat(), 'load': os.getloadavg()[0]}
    try:
        python = install(entry['install'], folder, beneath=_packages())
        packages = next((folder / 'lib').glob('python3.*')) / 'site-packages'
        root = Path(__file__).absolute().parents[1]
        start = ['env', *(f'{name}={value}' for name, value in entry.get('variables', {}).items()),
                 f'PYTHONPATH={packages}:{os.environ.get("PYTHONPATH", "")}:{root}']
        found['versions'] = _versions(entry['install'], python)
        found |= _train(entry, start, seconds)
        found['random'] = _random(entry, start)
    except RuntimeError as error:
        found['reason'] = str(error).splitlines()[-1]
    return found


def _packages() -> list[str]:
    return [each for each in sys.path if Path(each).name in ('site-packages', 'dist-packages')]


def _versions(requirements: Sequence[str], python: Path) -> dict[str, str]:
    names = [re.split('[<>=!~]', each)[0] for each in requirements]
    code = ('import importlib.metadata as m, json, sys; '
            'print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))')
    return _json(['env', '-u', 'PYTHONPATH', str(python), '-c', code, *names], _VERSIONS_S)


def _random(entry: Mapping[str, Any], start: Sequence[str]) -> dict[str, Any]:
    from benchmarks.graph import module_command
    from vdl_ros.envs.env_config import EnvConfig
    given = {'env_id': entry['env_id'], **entry.get('settings', {})}
    env = {each.name: given[each.name] for each in dataclasses.fields(EnvConfig)
           if each.name in given}
    return _json([*start, *module_command(
        'benchmarks.third_party.random_return', json.dumps(env),
        entry.get('env_modules', ''), str(_RANDOM_S))], _START_S + _RANDOM_S)


def _json(words: Sequence[str], limit: float) -> dict[str, Any]:
    """Return the object in the last line that a command prints."""
    try:
        # Some environments write files where they are started.
        with tempfile.TemporaryDirectory() as place:
            done = subprocess.run(words, capture_output=True, text=True, timeout=limit,
                                  check=False, cwd=place)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f'{words[-1]}: not within {limit:g} s') from None
    if done.returncode:
        raise RuntimeError(' '.join(done.stderr.splitlines()[-1:]))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _train(entry: Mapping[str, Any], start: Sequence[str], seconds: float) -> dict[str, Any]:
    """Train until the seconds after the first update are over, then as Ctrl-C; return its end."""
    from benchmarks.graph import launched, progress_rows, wait
    with tempfile.TemporaryDirectory() as place:
        log, run = Path(place) / 'log', Path(place) / 'run'
        words = [*LAUNCH.split(), *(f'{name}:={value}' for name, value in settings(entry).items())]
        try:
            # It ends by itself at the return of its preset.
            with launched(*start, *words, f'run_dir:={run}', log=log, may_end=True,
                          cwd=Path(place)) as process:
                wait(process, lambda: progress_rows(run), _START_S, 'the first update')
                began = time.monotonic()
                wait(process, lambda: time.monotonic() >= began + seconds, 2 * seconds, 'the end')
        except RuntimeError as error:
            report.log(str(error))
            raise RuntimeError(reason(log.read_text(errors='replace')) or str(error)) from None
        summary = json.loads((run / 'summary.json').read_text())
    return {'agent_steps': summary['agent_steps'], 'wall_s': summary['wall_s'],
            'episodes': summary['episodes'], 'mean_return': summary['mean_return_100']}


def reason(log: str) -> str:
    """Return the line with which a learner has ended, else the first error, else ''."""
    lines = (re.findall(r'^\[learner-1\] learner: (.*)$', log, re.MULTILINE)[-1:]
             or re.findall(r'^.*\bERROR\b.*$', log, re.MULTILINE))
    return lines[0] if lines else ''


def markdown(found: Mapping[str, Any]) -> str:
    trained, others = [], []
    for name, each in found['environments'].items():
        versions = ', '.join(f'{key} {value}' for key, value in each.get('versions', {}).items())
        if 'reason' in each:
            note = f' ({each["note"]})' if 'note' in each else ''
            others.append(
                f'* {name}, {versions or " ".join(each["install"])}{note}: '
                f'`{each["reason"].partition("; ")[0]}`')
        else:
            trained.append((
                name, versions, f'`{each["command"].replace(f"{LAUNCH} ", "")}`',
                f'{each["agent_steps"]:,}', _number(each['mean_return']),
                _number(each['random']['mean_return'])))
    return '\n'.join([
        *report.table(('environment', 'versions', 'arguments', 'steps', 'return', 'random'),
                      trained), *(['', 'Not trained:', '', *others] if others else [])])


def _number(value: float | None) -> str:
    return '-' if value is None else f'{value:.3g}' if abs(value) < 100 else f'{value:,.0f}'


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_third_party', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    from benchmarks.graph import own_domain
    known = {}
    if options.output is not None and options.output.exists():
        known = json.loads(options.output.read_text())['environments']
    with own_domain():
        for name in options.names:
            report.log(name)
            entry = listed()[name]
            folder = options.folder / re.sub(r'\W+', '_', '_'.join(entry['install']))
            known[name] = measure(entry, folder, options.seconds)
            report.log(f'{name}: ' + str({key: value for key, value in known[name].items()
                                          if key not in ('command', 'install')}))
    report.deliver('third_party', {
        'cores': len(os.sched_getaffinity(0)), 'seconds': options.seconds,
        'environments': {name: known[name] for name in listed() if name in known}},
        options, markdown)

