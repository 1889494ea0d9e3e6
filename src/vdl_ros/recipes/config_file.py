"""A YAML file of settings by name: written by hand, or the ``config.yaml`` of a run."""

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.common.files import find_resource
from vdl_ros.common.plain_yaml import YamlError, read_yaml
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, SettingError, current_name, settings_of
from vdl_ros.envs.env_config import ROBOT, EnvConfig, EnvModulesConfig
from vdl_ros.recipes.yaml_file import YamlFile
from vdl_ros.rl.runs.run_config import CONFIG, GIVEN_AGAIN, RunConfig, RunFolderConfig
from vdl_ros.rl.settings import (
    ALGORITHM_SETTINGS,
    BEFORE,
    MEMORY,
    WITHOUT_MEMORY,
    ActorConfig,
    TrainConfig,
    reject_other_algorithm_settings,
)
from vdl_ros.robots.contract_files import lineage

_SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(),
             AttackConfig, SurrogateConfig, RunConfig, RunFolderConfig)


def read_config(path: Path, *more: type) -> dict[str, Scalar]:
    """Return the settings in a file, which may also have those of the dataclasses ``more``.

    ``env_kwargs`` may be a mapping, ``env_wrappers`` and ``env_modules`` lists. A SettingError
    names what is not allowed.
    """
    file = YamlFile(path)
    content = file.mapping((), file.content)
    # What a run writes of its environment beside the settings.
    content.pop('environment', None)
    # An actor's settings have names of the learner's.
    found = file.settings((), content, settings_of(ActorConfig) | settings_of(*_SETTINGS, *more))
    file.check('config: ')
    return found


# The texts that what is saved may choose; all others name files, modules or addresses, and those
# only a user of this host may name.
_SAVED_TEXTS = ('env_id', 'env_kwargs', 'env_wrappers', 'bodies', 'adversarial_mode',
                'tracker_project')
#: How many processes learn and act.
PROCESSES = ('num_actors', 'num_learners')
# Settings of one start.
_OF_A_START = ('relearn', 'learner_rank', 'device', *PROCESSES)


def of_saved(
    content: Mapping[str, object], left_out: Sequence[str] = _OF_A_START,
) -> dict[str, object]:
    """Return what a saved run or checkpoint, which may be a stranger's, sets of a training.

    These are numbers, choices and some texts; the rest of its content has no effect. A
    SettingError names a value that is not allowed.
    """
    known = {name: each for name, each in settings_of(*_SETTINGS).items()
             if name in _SAVED_TEXTS or each.type is not str or each.choices}
    named = {current_name(str(name)): value for name, value in content.items()}
    return {name: known[name].check(value) for name, value in named.items()
            if name in known and name not in left_out}


def saved_settings(
    folder: Path, given: Mapping[str, object], needed: Sequence[str] = GIVEN_AGAIN,
    more: Sequence[str] = (),
) -> dict[str, object]:
    """Return the settings of the run in ``folder``, which a user resumes with ``given``.

    ``more`` are those of a start that are kept. A SettingError names a file that the run has, if
    it is among those that are ``needed``, and that the user does not give again.
    """
    content = read_saved('resume', folder)
    for name in needed:
        if content.get(name) and name not in given:
            raise SettingError(f'{name}: missing: a resumed run does not take the names of files '
                               f'from {folder}, which has {quoted(content[name])}')
    return of_saved(content, [name for name in _OF_A_START if name not in more])


def settings_of_init(given: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the run whose weights a new run starts with, by the user's settings.

    They are empty if the user names an environment or an algorithm, or if ``init`` is not in the
    folder of a run, or is in that of a run on a robot. An attack on that run is not part of them.
    SettingError: of no file the network of images shall be taken.
    """
    if given.get('init_encoder') and not given.get('init') and not given.get('resume'):
        raise SettingError('init_encoder: true is not allowed without init, the file of the '
                           'network')
    path = Path(str(given.get('init') or ''))
    run = path if path.is_dir() else path.parent
    if (not given.get('init') or given.keys() & {'env_id', 'algorithm', 'resume'}
            or not path.exists() or not (run / CONFIG).exists()):
        return {}
    settings = of_saved(read_saved('init', run))
    if str(settings.get('env_id', '')).startswith(ROBOT):
        return {}  # a folder must not choose the robot that moves
    return {name: value for name, value in settings.items()
            if not name.startswith('adversarial_') and name not in ('freeze', 'init_encoder')}


def read_saved(setting: str, run: Path) -> dict[str, object]:
    """Return what config.yaml of a run has; a SettingError names the setting that is for it."""
    try:
        content = read_yaml(run / CONFIG)
        if not isinstance(content, dict):
            raise YamlError('not a mapping')
    except YamlError as error:
        raise SettingError(f'{setting}: {run} holds no readable {CONFIG}: {error}') from None
    return {**BEFORE, **content}


def folder() -> Path:
    """Return the folder ``config`` of the installed package, or of the checkout."""
    return find_resource('config/tasks').parent


def preset(
    env_id: str, algorithm: str, network: str = '', robots: str = '',
) -> dict[str, object]:
    """Return the preset settings.

    ``network`` is the one that the user names, if any; ``robots`` the folder of the contracts.
    """
    found: dict[str, object] = {}
    path = folder() / 'algorithms' / f'{algorithm}.yaml'
    if path.is_file():
        found |= read_yaml(path)['/**']['ros__parameters']
    task = _task(env_id, robots)
    found |= task.get('settings', {})
    found |= task.get('environments', {}).get(env_id, {})
    found |= task.get('algorithms', {}).get(algorithm, {})
    found |= task.get('networks', {}).get(network, {})
    if algorithm in WITHOUT_MEMORY:
        found = {name: value for name, value in found.items() if name not in MEMORY}
    return found


def _task(env_id: str, robots: str = '') -> Mapping[str, Any]:
    """Return the file of a task, {} without one; of several the first by name counts.

    A robot has the file of a contract that its own includes, too.
    """
    env_ids = [env_id]
    if env_id.startswith(ROBOT):
        env_ids = [ROBOT + name for name in lineage(env_id.removeprefix(ROBOT), robots)]
    for path in sorted((folder() / 'tasks').glob('*.yaml')):
        content: Mapping[str, Any] = read_yaml(path)
        if any(fnmatch.fnmatchcase(each, pattern)
               for each in env_ids for pattern in content['env_ids']):
            return content
    return {}


def resolve(
    given: Mapping[str, object], saved: Mapping[str, object] | None = None,
    default_env_id: str = EnvConfig.env_id,
) -> dict[str, object]:
    """Return all settings that differ from the defaults, by name.

    The user's, ``given``, override all others; ``saved`` are of the run that is resumed. A
    SettingError names a setting of another algorithm, or another algorithm than the resumed run's.
    """
    was = (saved or {}).get('algorithm')
    env_id = str(given.get('env_id', default_env_id))
    robots = str(given.get('robots', ''))
    better = {} if saved else {
        name: value for name, value in _task(env_id, robots).items() if name == 'algorithm'}
    algorithm = str(given.get('algorithm') or was or better.get('algorithm')
                    or TrainConfig.algorithm)
    if was and algorithm != was:
        raise SettingError(f'algorithm: {algorithm!r} is not allowed: the run was trained with '
                           f'{quoted(was)} and cannot be resumed with another')
    reject_other_algorithm_settings(given, algorithm)
    base = dict(saved) if saved else (
        preset(env_id, algorithm, str(given.get('network', '')), robots) | better)
    return base | dict(given)
