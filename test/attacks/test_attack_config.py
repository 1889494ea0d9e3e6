"""Modes of attacks: their schedules, and with which settings they are refused."""

import pytest

from vdl_ros.attacks.attack_config import (
    AttackConfig,
    Schedule,
    SurrogateConfig,
    schedule,
    verify_attack,
)
from vdl_ros.common.settings import SettingError
from vdl_ros.rl.train_config import TrainConfig


@pytest.mark.parametrize(('mode', 'expected'), [
    ('fgsm', Schedule()), ('fgsm_skip5', Schedule(5)), ('fgsm_skip10', Schedule(10)),
    ('fgsm_reuse5', Schedule(5, reuse=True)), ('fgsm_vf', Schedule(by_value=True)),
    ('random', Schedule()), ('patch', Schedule())])
def test_the_schedule_of_a_mode(mode, expected):
    assert schedule(mode) == expected


@pytest.mark.parametrize('mode', ['', 'FGSM', 'fgsm_skip', 'fgsm_skip0', 'fgsm_reuse12345', 'x'])
def test_an_unknown_mode_is_refused_with_those_that_are_allowed(mode):
    with pytest.raises(SettingError, match=f"^adversarial_mode: '{mode}' is not allowed: none, "):
        verify_attack(AttackConfig(adversarial_mode=mode), TrainConfig())


def test_a_run_without_an_attack_keeps_its_settings_and_one_with_it_computes_in_float32():
    train = TrainConfig(precision='bfloat16')
    assert verify_attack(AttackConfig(), train) == train
    attack = AttackConfig(adversarial_mode='fgsm')
    assert verify_attack(attack, TrainConfig()).precision == 'float32'
    with pytest.raises(SettingError, match="^precision: 'bfloat16' is not allowed with advers"):
        verify_attack(attack, train)


def test_an_attack_that_needs_values_is_refused_where_the_policy_has_none():
    with pytest.raises(SettingError, match="^adversarial_mode: 'fgsm_vf' is not allowed with alg"):
        verify_attack(AttackConfig(adversarial_mode='fgsm_vf'), TrainConfig(algorithm='sac'))


def test_an_attack_that_needs_weights_is_refused_where_actors_have_none():
    train = TrainConfig(inference='learner')
    surrogate = SurrogateConfig(adversarial_checkpoint='other.pt')
    attack = AttackConfig(adversarial_mode='fgsm_skip5')
    with pytest.raises(SettingError, match="^adversarial_mode: 'fgsm_skip5' is not allowed with "):
        verify_attack(attack, train, SurrogateConfig())
    assert verify_attack(attack, train, surrogate).inference == 'learner'
    assert verify_attack(AttackConfig(adversarial_mode='random'), train, SurrogateConfig())
    # The learner does not know what its actors have.
    assert verify_attack(attack, train)
