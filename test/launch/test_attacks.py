"""Actors without weights attack by a surrogate, and say so."""

import threading

import pytest
from diagnostic_msgs.msg import DiagnosticStatus

from vdl_ros import local_training
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config


@pytest.mark.slow
def test_actors_without_weights_attack_by_a_surrogate_and_report_it(launch, peer, run):
    config = TrainConfig(total_steps=100)
    local_training.train(EnvConfig(), config, make_algorithm_config(config, {}), run.path,
                         threading.Event())
    health = peer.listen('/diagnostics')
    train = launch.file('train', f'run_dir:={run.path.parent / "attacked"}', 'env_id:=CartPole-v1',
                        'inference:=learner', 'total_steps:=100000000', 'adversarial_mode:=fgsm',
                        'adversarial_epsilon:=0.1', f'adversarial_checkpoint:={run.checkpoint}')

    def told():
        return [each for array in health for each in array.status if 'attacks' in each.message]

    def counts():
        return {each.name: int(values['observations attacked']) for each in told()
                for values in [{value.key: value.value for value in each.values}]}

    peer.until(lambda: len(counts()) == 2 and min(counts().values()) > 0, 'both actors')
    assert {(each.level, each.message) for each in told()} == {
        (DiagnosticStatus.WARN, 'attacks what the policy observes: fgsm, epsilon 0.1')}
    train.stop()
