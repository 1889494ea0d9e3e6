"""A frozen policy under attack, from the command line: training with it, and evaluation."""

import csv
import threading

import yaml
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from vdl_ros import local_training
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.algorithm_config import make_algorithm_config
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import qos


def test_a_frozen_policy_is_attacked_in_training_and_evaluation(launch, run):
    config = TrainConfig(total_steps=100)
    local_training.train(EnvConfig(), config, make_algorithm_config(config, {}), run.path,
                         threading.Event())
    attacked = run.path.parent / 'attacked'
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={attacked}',
                   f'init:={run.checkpoint}', 'freeze:=true',
                   'adversarial_mode:=fgsm_reuse5', 'adversarial_epsilon:=0.1',
                   'total_steps:=3000')
    assert train.wait() == 0, train.output
    config = yaml.safe_load((attacked / 'config.yaml').read_text())
    assert (config['adversarial_mode'], config['adversarial_epsilon']) == ('fgsm_reuse5', 0.1)
    found = yaml.safe_load((attacked / 'summary.json').read_text())
    assert (found['ended_by'], found['updates']) == ('total_steps', 0)
    assert found['trajectories_rejected'] == 0
    assert found['adversary']['inject_share'] > 0.9
    assert 0.09 < found['adversary']['l2'] < 0.1001
    with (attacked / 'episode.csv').open() as file:
        assert len(list(csv.DictReader(file))) > 1

    evaluate = launch('ros2', 'launch', 'vdl_ros', 'evaluate.launch.py',
                      f'checkpoint:={run.checkpoint}', 'episodes:=4', 'adversarial_mode:=pgd',
                      f'adversarial_checkpoint:={run.checkpoint}')
    assert evaluate.wait() == 0, evaluate.output
    assert '] 4 episodes: mean ' in evaluate.output
    assert 'attacked: 4 episodes: mean ' in evaluate.output
    assert 'observations perturbed (100%), return lost ' in evaluate.output

    refused = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', 'inference:=learner',
                     'env_id:=CartPole-v1', 'adversarial_mode:=fgsm')
    assert refused.wait() != 0
    assert "adversarial_mode: 'fgsm' is not allowed with inference 'learner'" in refused.output


def test_actors_without_weights_attack_by_a_surrogate_and_report_it(launch, peer, run):
    config = TrainConfig(total_steps=100)
    local_training.train(EnvConfig(), config, make_algorithm_config(config, {}), run.path,
                         threading.Event())
    health = peer.listen(DiagnosticArray, '/diagnostics', qos.TOPICS['/diagnostics'])
    attacked = run.path.parent / 'attacked'
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={attacked}',
                   'env_id:=CartPole-v1', 'inference:=learner', 'total_steps:=100000000',
                   'adversarial_mode:=fgsm', 'adversarial_epsilon:=0.1',
                   f'adversarial_checkpoint:={run.checkpoint}')

    def told():
        return [each for array in health for each in array.status if 'attacks' in each.message]

    def counts():
        return {each.name: int(values['observations attacked']) for each in told()
                for values in [{value.key: value.value for value in each.values}]}

    peer.until(lambda: len(counts()) == 2 and min(counts().values()) > 0, 'both actors')
    assert {(each.level, each.message) for each in told()} == {
        (DiagnosticStatus.WARN, 'attacks what the policy observes: fgsm, epsilon 0.1')}
    train.interrupt()
    assert train.wait() == 0, train.output
