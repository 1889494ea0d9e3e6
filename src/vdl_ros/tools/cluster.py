"""Train over several hosts by a hosts file: ``ros2 run vdl_ros cluster --help``.

``start`` starts learners and actors on their hosts and returns, ``--watch`` stays until the
training ends or Ctrl-C and then stops all, as ``cluster.launch.py`` does. ``status`` shows what
runs where. ``stop`` ends all and brings logs and run home. ``--dry-run`` prints the command of
each task, for the jobs of a scheduler too. See docs/cluster.md.

Exit status: 0 if all is well; 1 if a task has failed or may run on; 2 for bad input, or hosts that
do not answer at the start.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.cluster.control import Control, Watch
from vdl_ros.cluster.plan import (
    ClusterConfig,
    Plan,
    make_plan,
    planned_names,
    read_hosts,
    read_plan,
)
from vdl_ros.cluster.ssh import task_command
from vdl_ros.common.command_line import (
    EXIT_BAD_INPUT,
    OneLineParser,
    aligned,
    run_tool,
    say,
    stop_on_signals,
)
from vdl_ros.common.files import unique_name
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, as_text, select, settings_of, suggestion
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.recipes.config_file import read_config
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig, verify_run
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import die_with_parent

EXIT_FAILED = 1
ACTIONS = ('start', 'status', 'stop')
# Settings of learner 0, which sends those of the training to all others.
FIRST = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(), AttackConfig,
         RunConfig, RunFolderConfig, ProcessConfig)
# Of the others and of actors: those of their own process.
OTHERS = (*settings_of(EnvModulesConfig), 'device', 'learner_threads', 'group_timeout')
ACTORS = (*settings_of(EnvModulesConfig), 'adversarial_checkpoint')
# Launch arguments of every learner and actor.
OF_EVERY_TASK = ('namespace', 'log_level')
# Derived from the hosts file, or of one host.
DERIVED = ('num_actors', 'num_learners', 'learner_rank', 'group_address', 'relearn', 'launch_id')


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog='cluster', formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(__doc__ or '').strip(), epilog='settings of the cluster:\n' + '\n'.join(
            f'  {each.name:<13} {each.metadata["doc"]}' for each in fields(ClusterConfig))
        + '\nall others are those of docs/settings.md')
    add = parser.add_argument
    add('words', nargs='*', metavar='start|status|stop | NAME:=VALUE',
        help='what to do [start], and settings')
    add('--dry-run', action='store_true',
        help='print the commands for each host, and start nothing')
    add('--watch', action='store_true', help='stay: show all logs, stop all at the end')
    add('--with-parent', action='store_true',
        help='with --watch: stop all also when the process that started it dies')
    return parser


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_intermixed_args(args)
    return run_tool('cluster', lambda: _act(options))


def _act(options: argparse.Namespace) -> int:
    action, given = _words(options.words)
    config = select(ClusterConfig, {
        name: settings_of(ClusterConfig)[name].parse(text) for name, text in given.items()
        if name in settings_of(ClusterConfig)})
    if action == 'start' or options.dry_run:
        return _begin(config, given, options)
    control = Control(_running(config), say)
    return _show(control) if action == 'status' else _stop(control, config.stop_timeout)


def learner_and_actor_settings(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the launch arguments of learner 0, of the other learners and of actors."""
    known = settings_of(*FIRST, SurrogateConfig)
    own = {*settings_of(ClusterConfig), 'config'}
    values = {}
    if given.get('config'):
        in_file = read_config(Path(given['config']), ProcessConfig)
        values = {name: as_text(value) for name, value in in_file.items() if name not in DERIVED}
    values |= {name: text for name, text in given.items() if name not in own}
    of_every = {name: values.pop(name) for name in OF_EVERY_TASK if name in values}
    for name, text in values.items():
        if name in DERIVED:
            raise SettingError(f'{name}: not allowed: the hosts file sets it')
        if name not in known:
            raise SettingError(f'{name}: no such setting'
                               f'{suggestion(name, [*known, *own, *OF_EVERY_TASK])}')
        known[name].parse(text)
    of_first = {*settings_of(*FIRST)} - {'run_dir'}
    return {job: {name: text for name, text in values.items() if name in names} | of_every
            for job, names in (('first', of_first), ('learner', OTHERS), ('actor', ACTORS))}


def _words(words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return what to do, and the settings by name; SettingError for other words."""
    action, given = 'start', {}
    for index, word in enumerate(words):
        name, separator, value = word.partition(':=')
        if separator:
            given[name] = value
        elif index == 0 and word in ACTIONS:
            action = word
        else:
            raise SettingError(f'{quoted(word)} is not allowed: one of {", ".join(ACTIONS)} at '
                               f'the front, or NAME:=VALUE{suggestion(word, ACTIONS)}')
    return action, given


def _plan(config: ClusterConfig, given: Mapping[str, str]) -> Plan:
    if not config.hosts:
        raise SettingError("hosts: '' is not allowed: the CSV file with learners and actors")
    path = Path(config.hosts)
    rows = read_hosts(path)
    name = config.name or path.stem
    run_dir = given.get('run_dir') or given.get('resume') or f'runs/{name}-{unique_name()}'
    plan = make_plan(name, Path(run_dir), rows, learner_and_actor_settings(given), config,
                     os.environ.get('ROS_DOMAIN_ID') or '0')
    first = dict(word.split(':=', 1) for word in plan.tasks[0].command if ':=' in word)
    verify_run(select(RunConfig, {
        name: each.parse(first[name]) for name, each in settings_of(RunConfig).items()
        if name in first}))
    return plan


def _running(config: ClusterConfig) -> Plan:
    """Return the plan of the cluster that was started here, or the one of a hosts file."""
    name = config.name or (Path(config.hosts).stem if config.hosts else '')
    known = planned_names()
    if name in known or (name and not config.hosts):
        return read_plan(name)
    if config.hosts:
        # Started by another machine.
        return _plan(config, {'run_dir': f'runs/{name}'})
    if len(known) != 1:
        raise SettingError(f'name: none is given: name:={" or name:=".join(known)}' if known else
                           'no cluster was started here: hosts:=FILE names one that another '
                           'machine started')
    return read_plan(known[0])


def _begin(
    config: ClusterConfig, given: Mapping[str, str], options: argparse.Namespace,
) -> int:
    plan = _plan(config, given)
    if options.dry_run:
        for index, host in enumerate(plan.hosts):
            print(f'# {host}{" (this machine)" if host.here else ""}')
            for task in plan.on(index):
                print(f'# {task.name}\n{task_command(host, task)}')
        return 0
    if options.with_parent:
        die_with_parent()
    stop = stop_on_signals()
    home = Path(plan.run_dir)
    if home.exists() and any(home.iterdir()) and not given.get('resume'):
        raise SettingError(f'run_dir: {plan.run_dir!r} is not allowed: it has files')
    control = Control(plan, say)
    if errors := control.start():
        _complain(errors)
        return EXIT_BAD_INPUT
    for index, host in enumerate(plan.hosts):
        say(f'{host}: started {", ".join(task.name for task in plan.on(index))}')
    if not options.watch:
        if stop.is_set():
            return _stop(control, config.stop_timeout)
        say(f'ros2 run vdl_ros cluster status name:={plan.name}')
        say(f'ros2 run vdl_ros cluster stop name:={plan.name}')
        return 0
    watch = Watch(control, stop)
    watch.run()
    return max(_stop(control, config.stop_timeout), EXIT_FAILED if watch.failed else 0)


def _show(control: Control) -> int:
    rows = [(name, host, state, str(pid or ''), line)
            for name, host, state, pid, line in control.status()]
    head = ('name', 'host', 'state', 'pid', 'last line of the log')
    print('\n'.join(aligned([head, *rows])))
    return 0 if all(row[2] == 'running' for row in rows) else EXIT_FAILED


def _stop(control: Control, timeout: float) -> int:
    errors = control.stop(timeout)
    say(f'logs are in {control.plan.run_dir}/logs')
    _complain(errors)
    if errors:
        say(f'to try again: ros2 run vdl_ros cluster stop name:={control.plan.name}')
    else:
        say('nothing runs any more')
    return EXIT_FAILED if errors else 0


def _complain(lines: Sequence[str]) -> None:
    for line in lines:
        print(f'cluster: {line}', file=sys.stderr, flush=True)
