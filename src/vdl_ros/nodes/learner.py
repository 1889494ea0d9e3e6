"""The learner node: trains a policy on the trajectories of actors, or of a bag, and publishes it.

With ``algorithm:=bc`` it learns from the files of demonstrations instead, without actors.
"""

import json
import threading
from pathlib import Path

import torch

from vdl_ros.attacks.attack_config import AttackConfig, verify_attack
from vdl_ros.common.children import MAKING_S, ending_within, telling
from vdl_ros.common.command_line import EXIT_DISK
from vdl_ros.common.memory import OutOfMemoryError, named_lack_of_memory
from vdl_ros.common.quoting import in_one_line
from vdl_ros.common.settings import Scalar, SettingError, as_dict, select
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.play.evaluator import verify_evaluations
from vdl_ros.play.saved_policy import VIDEO_S, record_video
from vdl_ros.recipes import config_file
from vdl_ros.rl.acting.flow_control import make_learner_id
from vdl_ros.rl.device import choose_device
from vdl_ros.rl.distributed.collectives import Group, GroupError, MissingError
from vdl_ros.rl.distributed.process_group import join
from vdl_ros.rl.learning.reporting import NOT_SAVED
from vdl_ros.rl.learning.trainer import NOT_FINITE
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig, verify_run
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.settings import (
    ALGORITHM_SETTINGS,
    AlgorithmConfig,
    TrainConfig,
    make_algorithm_config,
    reject_other_algorithm_settings,
    verify,
)
from vdl_ros.ros import parameters
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import (
    EXIT_BAD_INPUT,
    EXIT_OK,
    EXIT_RESTART,
    die_with_parent,
    set_up,
)
from vdl_ros.ros.robots.robot_env import register
from vdl_ros.ros.training.messages import RefusedError
from vdl_ros.ros.training.training import Training, TrainingSettings


class LearnerNode(BaseNode):
    """The node with its settings; :class:`Training` adds learner, topics and training loop."""

    NAME = 'learner'
    SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(),
                AttackConfig, RunConfig, RunFolderConfig)

    def __init__(self) -> None:
        super().__init__()
        rank = self.given.get('learner_rank', 0)
        self._resume = '' if rank else str(self.given.get('resume', ''))
        # The other learners receive the settings of learner 0 in share_settings.
        self._values = dict(self.given) if rank else config_file.resolve(
            config_file.settings_of_init(self.given) | self.given,
            config_file.saved_settings(Path(self._resume), self.given, ['demonstrations'])
            if self._resume else None)
        self._run = select(RunConfig, self._values)
        self._process = select(ProcessConfig, self._values)
        verify_run(self._run)
        # An environment may change it.
        self._home = Path.cwd()
        self._modules = self.settings(EnvModulesConfig)
        import_modules(self._modules)
        # Only their spaces: the actors run them.
        register(self._modules, self.get_namespace(), threading.Event())
        if not rank:
            self.configs()
        self._device = choose_device(self._run.device, self._run.learner_rank)
        torch.set_num_threads(self._run.learner_threads or 1)
        self._learner_id = make_learner_id(self._process.launch_id)
        if self._process.launch_id:
            die_with_parent()

    def take_settings(self) -> dict[str, Scalar]:
        """Return what the user has set; parameters are declared when all are known."""
        return parameters.given(self, *self.SETTINGS, ProcessConfig)

    def configs(self) -> tuple[EnvConfig, TrainConfig, AlgorithmConfig, AttackConfig]:
        env, train = select(EnvConfig, self._values), select(TrainConfig, self._values)
        algorithm_config = make_algorithm_config(train, self._values)
        verify(train, algorithm_config, self._run.num_learners)
        verify_evaluations(env, train, self._run.video)
        if self._run.relearn and train.inference == 'learner':
            raise SettingError("inference: 'learner' is not allowed with relearn true: 'actor'; "
                               'a bag of observations holds no trajectories')
        if self._run.relearn and train.algorithm == 'bc':
            raise SettingError("algorithm: 'bc' is not allowed with bag: it learns from "
                               'demonstrations')
        attack = select(AttackConfig, self._values)
        return env, verify_attack(attack, train), algorithm_config, attack

    def _training_settings(self) -> TrainingSettings:
        """Return all settings; those of learner 0 after :meth:`share_settings`."""
        return TrainingSettings(
            *self.configs(), self._run, select(RunFolderConfig, self._values), self._process,
            self._modules, self._device, self._resume, self._learner_id, self._home)

    def join_group(self, stop: threading.Event) -> Group | None:
        """Return the group of all learners, or None if ``stop`` was set before all had joined."""
        run = self._run
        if run.num_learners == 1:
            return Group()
        self.get_logger().info(f'learner {run.learner_rank} of {run.num_learners} joins the '
                               f'others at {run.group_address}')
        while True:
            try:
                return join(run.learner_rank, run.num_learners, run.group_address,
                            run.group_timeout, stop=stop, device=self._device)
            except MissingError as error:
                # Not to be started again: learners that take longer to start than the others
                # wait would come and go in turn, and never meet.
                self.get_logger().warning(f'{error}; it goes on waiting')

    def share_settings(self, group: Group) -> None:
        """Take over the settings and the id of learner 0, and declare all parameters."""
        shared = {} if group.rank else (
            as_dict(*self.configs()) | {
                name: getattr(self._run, name) for name in ('num_actors', 'stall_timeout')})
        self._learner_id, shared = json.loads(
            group.broadcast(json.dumps([self._learner_id, shared]).encode()))
        reject_other_algorithm_settings(self.given, shared['algorithm'])
        for name, value in self.given.items():
            if shared.get(name, value) != value:
                raise SettingError(f'{name}: {value!r} is not allowed: learner 0 has '
                                   f'{shared[name]!r}')
        self._values |= shared
        self._run = select(RunConfig, self._values)
        parameters.declare(self, self._values, *self.SETTINGS, ProcessConfig)

    def _record_run(self, folder: RunFolder, stop: threading.Event) -> None:
        """Record what the policy does into the run's folder, where that can be drawn."""
        log = self.get_logger()
        log.info(f'records a video, which takes at most {VIDEO_S:g} s')
        try:
            with ending_within(MAKING_S, self.NAME, stop), \
                    telling(f'{self.NAME}: records the video'):
                log.info(record_video(folder.checkpoint, folder.path / 'video.mp4', stop))
        except Exception as error:  # the run has ended well and must not start again
            log.warning(f'no video: {in_one_line(error)}')

    def run(self, stop: threading.Event) -> int:
        """Join the other learners and train; if the group breaks, exit to be started again."""
        group = None
        try:
            with set_up():
                group = self.join_group(stop)
                if group is None or stop.is_set():
                    return EXIT_OK
                self.share_settings(group)
                # It makes an environment, to know its spaces.
                with ending_within(MAKING_S, self.NAME, stop), \
                        telling(f'{self.NAME}: making an environment and the network'), \
                        named_lack_of_memory(as_dict(*self.configs())):
                    training = Training(self, group, self._training_settings())
            with named_lack_of_memory(as_dict(*self.configs())):
                reason = training.run(stop)
            if reason == NOT_FINITE:
                # A restart would meet the same numbers again.
                return EXIT_BAD_INPUT
            if reason == NOT_SAVED:
                return EXIT_DISK
            if self._run.video and training.folder is not None and reason != 'interrupted':
                self._record_run(training.folder, stop)
        except RefusedError as error:
            self.get_logger().error(f'{error}; a bag needs the settings of its training: '
                                    'config:=RUN/config.yaml')
            return EXIT_BAD_INPUT
        except OutOfMemoryError as error:
            self.get_logger().error(str(error))
            return EXIT_BAD_INPUT
        except GroupError as error:
            self.get_logger().error(f'{error}; all learners start again')
            return EXIT_RESTART
        finally:
            if group is not None:
                group.close()
        return EXIT_OK


main = LearnerNode.main
