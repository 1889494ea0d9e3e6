"""Settings of nodes, beside those of what the nodes use."""

from dataclasses import dataclass
from pathlib import Path

from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.files import checkpoint_file
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, setting
from vdl_ros.pose.frames import DOMAINS, SPLITS
from vdl_ros.rl.settings import ActingConfig

#: Begin of the ``launch_id`` of a launch that has only actors.
ONLY_ACTORS = 'actors-'


@dataclass(frozen=True)
class ProcessConfig:
    """Settings of every node's process."""

    launch_id: str = setting('', 'Set by launch files, the same for all restarts of a node.')


@dataclass(frozen=True)
class RecordConfig:
    """Settings of the node ``recorder``."""

    output: str = setting('', 'Folder of the bag, which must not exist.')
    topics: str = setting(
        '*', 'Shell patterns, separated by commas. Compressed images need one that ends with '
        'compressed.')
    robot: str = setting(
        '', 'Record the topics of a contract instead: its name in this package, or '
        'FOLDER/NAME.yaml.')
    compression: str = setting(
        'none', "Compression of the bag's chunks.", choices=('none', 'lz4', 'zstd'))


@dataclass(frozen=True)
class BlackBoxConfig:
    """The node ``black_box``."""

    black_box: str = setting(
        '', "Folder for bags of the last 30 s of the robot's topics before an incident; empty: "
        '~/.ros/vdl_ros/black_box; none: no black box.')


@dataclass(frozen=True)
class CaptureConfig:
    """The node ``capture``."""

    output: str = setting(
        '', 'Folder of the data set; a capture with the same settings is continued.')
    frames: int = setting(20_000, 'Frames to capture.', minimum=1, maximum=100_000_000)
    domain: str = setting(
        'random', 'What is randomised besides the poses of arm and camera.', choices=DOMAINS)
    seed: int = setting(0, 'The same seed gives the same frames.', minimum=0, maximum=2**31 - 1)
    split: str = setting(
        'train', 'Part of the data set; no part has a frame of another.', choices=tuple(SPLITS))
    image_width: int = setting(128, 'Width of the images.', minimum=8, maximum=4096, unit='pixels')
    image_height: int = setting(
        128, 'Height of the images.', minimum=8, maximum=4096, unit='pixels')


@dataclass(frozen=True)
class PlayConfig:
    """The node ``player``."""

    bag: str = setting('', 'Folder of the bag, or its .mcap file.')
    play_topics: str = setting(
        '', 'Shell patterns, separated by commas; empty: all but those that command an arm.')
    play_rate: float = setting(1.0, 'Multiple of the recorded speed.', minimum=0.01, maximum=100.0)
    play_delay: float = setting(
        1.0, 'Time before the first message, for discovery.', minimum=0.0, maximum=60.0, unit='s')
    relearn: bool = setting(
        False, 'Play all trajectories, and only them, to a learner with relearn.')
    loop: bool = setting(False, 'Start again at the end.')
    publish_clock: bool = setting(False, 'Publish the recorded time on /clock.')


def policy_file(policy: str) -> Path:
    """Return the file that the setting ``policy`` names; SettingError: there is none."""
    if not policy:
        raise SettingError('policy: not set: policy:=runs/<name>')
    path = checkpoint_file(Path(policy))
    if path.is_file():
        return path
    raise SettingError(f'policy: {quoted(policy)} is not allowed: a checkpoint, an .onnx file, or '
                       'the name of a policy in models/')


@dataclass(frozen=True)
class RobotPolicyConfig:
    """The node ``play``."""

    robot: str = setting('', 'Robot: NAME of a contract, NAME.yaml.')
    policy: str = setting(
        '', 'Its policy: checkpoint, .onnx file of export_policy, name of one in this package, or '
        'external: another program, by play/observation and play/action.')
    external_horizon: float = setting(
        2.0, 'Time after an observation up to which an external policy acts by it.', minimum=0.01,
        maximum=60.0, unit='s')
    external_ensemble: float = setting(
        -1.0, 'Coefficient of temporal ensembling of what an external policy gives for several '
        'steps, 0.01 for example; -1: the newest.', minimum=-1.0, maximum=100.0)
    episodes: int = setting(
        0, 'Episodes after which it ends; 0: it plays on.', minimum=0, maximum=1_000_000_000,
        unit='episodes')
    reset: bool = setting(
        True, 'Reset the robot before each episode, as its contract says; false: the next one '
        'begins where it is.')
    targets: bool = setting(
        False, 'Act only for a target of arm/target, until something ends that, and without a '
        'reset.')
    task_arguments: str = setting(
        '', "Arguments of the contract's task beside its own, a JSON object.")
    autostart: bool = setting(
        True, 'Move the robot at once; false: after a lifecycle transition to active.')

    @property
    def is_external(self) -> bool:
        return self.policy == 'external'

    @property
    def path(self) -> Path:
        return Path(self.policy) if self.is_external else policy_file(self.policy)


@dataclass(frozen=True)
class PolicyRendererConfig:
    """The node ``policy_renderer``."""

    view_rate: float = setting(
        5.0, 'Largest rate of images of the policy, while somebody watches.', minimum=0.1,
        maximum=60.0, unit='Hz')


@dataclass(frozen=True)
class PoseModelConfig:
    """The network of the nodes ``pose_estimator`` and ``attacker``."""

    model: str = setting('', 'Model file or folder of a training; empty: the one in this package.')
    pose_threads: int = setting(1, 'CPU threads for the network.', minimum=1, maximum=64)


@dataclass(frozen=True)
class PoseConfig:
    """The node ``pose_estimator``."""

    joint_states: bool = setting(
        False, 'Track the joints by poses and motor commands, and publish them on '
        'arm/joint_states.')
    joint_std: float = setting(
        0.2, 'Joint states are published while the deviation of every joint is at most this.',
        minimum=0.001, maximum=3.0, unit='rad')


@dataclass(frozen=True)
class RobotStateConfig:
    """The node ``robot_state``."""

    source: str = setting(
        'joint_states', 'Topic of the joint positions.', choices=('joint_states', 'pose'))
    frame_prefix: str = setting('', 'Prefix of every frame.')


@dataclass(frozen=True)
class TwinConfig:
    """The nodes ``sim_arm`` and ``sim_so101``."""

    real_time_factor: float = setting(
        1.0, 'Simulated seconds per second, as far as the processor allows.', minimum=0.01,
        maximum=100.0)
    publish_clock: bool = setting(
        False, 'Publish simulated time on /clock, for nodes with use_sim_time.')
    cube: bool = setting(
        False, 'Put a cube of 3 cm on the table, to push or to pick; its pose is published.')


@dataclass(frozen=True)
class SimArmConfig(TwinConfig):
    """The node ``sim_arm``."""

    stepped: bool = setting(False, 'Time advances only by the service ~/step.')
    start_pose: str = setting(
        '', 'Start positions, such as "shoulder=0.4 elbow=-0.8", rad; others 0.')

    @property
    def pose(self) -> dict[str, float]:
        found = {}
        for word in self.start_pose.split():
            name, _, value = word.partition('=')
            try:
                found[name] = float(value)
            except ValueError:
                raise SettingError(
                    f'start_pose: {word!r} is not allowed: joint=rad, joints are '
                    f'{", ".join(JOINTS)}') from None
        return found


@dataclass(frozen=True)
class TopicStatsConfig:
    """Settings of the node."""

    topics: str = setting(
        '*', 'Shell patterns, separated by commas; one without a leading / matches in every '
        'namespace.')
    period: float = setting(
        2.0, 'Period of the table, and of its figures.', minimum=0.1, maximum=3600.0, unit='s')
    once: bool = setting(False, 'Print one table and exit.')
    wait: float = setting(
        10.0, 'Longest wait for the first report, with once.', minimum=0.1, maximum=1e6, unit='s')


@dataclass(frozen=True)
class WorldActorConfig(ActingConfig):
    """Settings of the actor of several agents in one world; their learners have all others."""

    agents: str = setting('', 'Namespaces of the learners, such as chaser,prey.')


@dataclass(frozen=True)
class TrainingViewerConfig:
    """The node ``training_viewer``."""

    view_host: str = setting(
        '127.0.0.1', 'Address of the view. Who reaches it can watch with the token that is '
        'printed.')
    view_port: int = setting(8081, 'Port of the view; 0: any free one.', minimum=0, maximum=65535)


@dataclass(frozen=True)
class ViewConfig:
    """The node ``viewer``."""

    view_host: str = setting(
        '127.0.0.1', 'Address of the view. Who reaches it can move the arm with the token that '
        'is printed.')
    view_port: int = setting(8080, 'Port of the view; 0: any free one.', minimum=0, maximum=65535)
    view_rate: float = setting(
        20.0, 'Rate at which the arm is drawn.', minimum=1.0, maximum=60.0, unit='Hz')
