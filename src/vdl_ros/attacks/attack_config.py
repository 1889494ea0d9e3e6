"""Settings of an attack on what a policy observes, and what they are allowed with."""

import dataclasses
import re
from dataclasses import dataclass

from vdl_ros.common.settings import SettingError, setting
from vdl_ros.rl.settings import TrainConfig

#: The mode without an attack.
NONE = 'none'
_MODES = (NONE, 'random', 'fgsm', 'fgsm_vf', 'pgd', 'pgd_l2', 'patch')
_PERIODIC = re.compile(r'fgsm_(skip|reuse)([1-9]\d{0,3})')


@dataclass(frozen=True)
class AttackConfig:
    """Settings of an attack; the learner sends them to its actors. See docs/attacks.md."""

    adversarial_mode: str = setting(
        NONE, 'Attack on observations: none, random, fgsm, fgsm_skipN, fgsm_reuseN, fgsm_vf, '
        'pgd, pgd_l2 or patch; N: every so many steps.')
    adversarial_epsilon: float = setting(
        0.01, 'Size of the perturbation: images from 0 to 1, normalized observations in '
        'deviations, others in their unit; patch: change in a step.', minimum=0.0, maximum=1e6)
    adversarial_value: float = setting(0.5, 'fgsm_vf only: perturb states of a larger value.')
    adversarial_steps: int = setting(
        10, 'pgd and pgd_l2 only: gradient steps for each observation.', minimum=1, maximum=1000)
    adversarial_patch: float = setting(
        0.2, 'patch only: height and width, as share of the image.', minimum=0.01, maximum=1.0)


@dataclass(frozen=True)
class SurrogateConfig:
    """Setting of an attack that each host gives to its own processes: it names a file."""

    adversarial_checkpoint: str = setting(
        '', 'Checkpoint, or model file of a pose network, whose gradients the attack uses; '
        'empty: the attacked one.')


@dataclass(frozen=True)
class Schedule:
    """When an attack computes a perturbation.

    It computes one in every ``period`` steps of an episode, beginning with the first, and with
    ``reuse`` applies the last one in the steps between; ``by_value``: it computes one only where
    the value is larger than ``adversarial_value``.
    """

    period: int = 1
    reuse: bool = False
    by_value: bool = False


def schedule(mode: str) -> Schedule:
    """Return the schedule of a mode; an unknown one is a SettingError."""
    periodic = _PERIODIC.fullmatch(mode)
    if periodic:
        return Schedule(int(periodic[2]), periodic[1] == 'reuse')
    if mode not in _MODES:
        raise SettingError(
            f'adversarial_mode: {mode!r} is not allowed: {", ".join(_MODES)}, fgsm_skipN or '
            'fgsm_reuseN with N from 1 to 9999')
    return Schedule(by_value=mode == 'fgsm_vf')


def verify_attack(
    attack: AttackConfig, train: TrainConfig, surrogate: SurrogateConfig | None = None,
) -> TrainConfig:
    """Check that an attack is possible; return the settings of training that it needs.

    Args:
        surrogate: of the process with the environments; None in others.

    Raises:
        SettingError: an unknown mode, or one that is not possible with other settings.
    """
    mode = attack.adversarial_mode
    schedule(mode)
    if mode == NONE:
        return train
    if mode == 'fgsm_vf' and train.algorithm == 'sac':
        raise SettingError("adversarial_mode: 'fgsm_vf' is not allowed with algorithm 'sac', "
                           "whose policy has no value: 'fgsm' or another mode")
    if train.precision == 'bfloat16':
        # It has 8 bits: near 1 it rounds a perturbation of 0.001 away.
        raise SettingError(f"precision: 'bfloat16' is not allowed with adversarial_mode {mode!r}: "
                           "'float32', or perturbations would be rounded away")
    if train.inference == 'learner' and mode != 'random' and surrogate is not None \
            and not surrogate.adversarial_checkpoint:
        raise SettingError(
            f"adversarial_mode: {mode!r} is not allowed with inference 'learner', where actors "
            "have no weights: 'random', or adversarial_checkpoint for another policy's")
    return dataclasses.replace(train, precision='float32')
