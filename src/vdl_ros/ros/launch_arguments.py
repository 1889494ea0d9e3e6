"""Launch arguments declared from settings, and the settings that a user gives by them.

Arguments that the user does not set are not passed to the node, so that a preset or a resumed run
can set them.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from launch import LaunchContext
from launch.actions import DeclareLaunchArgument

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import (
    OLD_NAMES,
    Scalar,
    Setting,
    SettingError,
    as_text,
    current_name,
    settings_of,
    suggestion,
)
from vdl_ros.recipes.config_file import read_config
from vdl_ros.recipes.yaml_file import setting_value
from vdl_ros.ros import parameters
from vdl_ros.ros.node_settings import ProcessConfig

RECORD = DeclareLaunchArgument(
    'record', default_value='',
    description='Record every topic to this bag, a folder that must not exist; with namespace '
                'its topics; empty: no bag.')

CONFIG = DeclareLaunchArgument(
    'config', default_value='',
    description='YAML file with settings by name, such as the config.yaml of a run; the arguments '
                'that are given override it. It names env_modules too: use files that you trust.')

LOG_LEVEL = 'info'
#: Arguments of every launch file.
EVERY_FILE = (
    DeclareLaunchArgument(
        'namespace', default_value='',
        description='Namespace of all nodes, for a second arm or training in one domain; empty: '
                    'none.'),
    DeclareLaunchArgument(
        'params_file', default_value='',
        description='ROS parameter file, YAML with ros__parameters below the names of nodes, or '
                    'below /** for every node that has them; the arguments that are given '
                    'override it. It can name env_modules: use files that you trust.'),
    DeclareLaunchArgument(
        'log_level', default_value=LOG_LEVEL, choices=['debug', 'info', 'warn', 'error', 'fatal'],
        description='Lowest level of the lines that nodes log.'),
)

_NAMESPACE = re.compile(r'/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*', re.ASCII)
_HIDDEN = ('launch_id',)  # not for users; see ProcessConfig


def declare(*classes: type) -> list[DeclareLaunchArgument]:
    return [
        DeclareLaunchArgument(
            name, default_value=as_text(setting.default),
            description=f'{setting.doc} ({setting.allowed}'
                        f'{"; " + setting.unit if setting.unit else ""})')
        for name, setting in settings_of(*classes).items() if name not in _HIDDEN]


def given(context: LaunchContext, *classes: type, node: str = '') -> dict[str, Scalar]:
    """Return the settings that the user gives for all nodes.

    Of several ways to give one the first counts: the command line or an including launch file,
    ``params_file`` (with the section of ``node``), ``config``.
    """
    config = context.launch_configurations.get('config', '')
    in_file = read_config(Path(config), ProcessConfig) if config else {}
    sections = _sections(context)
    in_sections = (parameters.of_node(sections, f'{pushed_namespace(context)}/{node}')
                   if node else sections.get(parameters.EVERY_NODE, {}))
    found = {}
    for name, setting in settings_of(*classes).items():
        text = _text(context, name)
        if name in _HIDDEN or text is None:
            continue
        if _is_set(context, setting):
            found[name] = setting.parse(text)
        elif name in in_sections:
            found[name] = _value(context, setting, in_sections[name])
        elif name in in_file:
            found[name] = setting.check(in_file[name])
    return found


def of_node(context: LaunchContext, name: str, *classes: type) -> dict[str, Scalar]:
    """Return what the parameter file has for one node, besides the settings for every node."""
    sections = _sections(context)
    known, found = settings_of(*classes), {}
    for_all = {key: value for key, value in sections.pop(parameters.EVERY_NODE, {}).items()
               if parameters.is_ros_parameter(key)}
    full_name = f'{pushed_namespace(context)}/{name}'
    for key, value in {**for_all, **parameters.of_node(sections, full_name)}.items():
        if parameters.is_ros_parameter(key):
            found[key] = value
        elif key in _HIDDEN:  # as `ros2 param dump` writes it
            continue
        elif key not in known:
            raise SettingError(f'{_where(context)}: {full_name}: {quoted(key)}: no such parameter'
                               f'{suggestion(key, known)}')
        elif not _is_set(context, known[key]):
            found[key] = _value(context, known[key], value)
    return found  # type: ignore[return-value]


def namespace(context: LaunchContext) -> str:
    text = str(context.launch_configurations.get('namespace', ''))
    if text and not _NAMESPACE.fullmatch(text):
        raise SettingError(f'namespace: {quoted(text)} is not allowed: letters, digits and _, '
                           'parts separated by /, none beginning with a digit')
    return text


def pushed_namespace(context: LaunchContext) -> str:
    """Return the absolute namespace of the nodes of this launch file, '' for none."""
    return str(context.launch_configurations.get('ros_namespace') or '').rstrip('/')


def reject_unknown_arguments(
    context: LaunchContext, file: str, known: Sequence[str], *classes: type,
) -> None:
    """Raise an error for an unknown launch argument, which ``ros2 launch`` would ignore.

    Nothing is checked if another launch file, with other arguments, includes ``file``. ``classes``
    are of the settings that its parameter file may have for every node.
    """
    if not any(word.rsplit('/', 1)[-1] == file for word in sys.argv):
        return
    for word in context.argv:
        name = word.split(':=', 1)[0]
        if ':=' in word and current_name(name) not in known:
            raise SettingError(f'{name}: no such argument of {file}{suggestion(name, known)}')
    settings = settings_of(*classes)
    for name in _sections(context).get(parameters.EVERY_NODE, {}):
        if name not in settings and not parameters.is_ros_parameter(name):
            raise SettingError(f'{_where(context)}: {quoted(name)}: no such parameter of the '
                               f'nodes of {file}{suggestion(name, settings)}')


def _is_set(context: LaunchContext, setting: Setting) -> bool:
    text = _text(context, setting.name)
    return (text is not None and text != as_text(setting.default)) or any(
        current_name(word.split(':=', 1)[0]) == setting.name
        for word in context.argv if ':=' in word)


def _text(context: LaunchContext, name: str) -> str | None:
    """Return the argument of a setting, also by a name of an earlier version."""
    given = context.launch_configurations
    names = [old for old, new in OLD_NAMES.items() if new == name and old in given]
    text: str | None = given.get(names[0] if names else name)
    return text


def _sections(context: LaunchContext) -> dict[str, dict[str, object]]:
    path = context.launch_configurations.get('params_file', '')
    return parameters.read_parameter_file(Path(path)) if path else {}


def _where(context: LaunchContext) -> str:
    return f'params_file: {context.launch_configurations["params_file"]}'


def _value(context: LaunchContext, setting: Setting, value: object) -> Scalar:
    try:
        return setting_value(setting, value)
    except SettingError as error:
        raise SettingError(f'{_where(context)}: {error}') from None
