"""Decision boundaries: the plane is that of the attack; the command's files and errors."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image

from vdl_ros import local_training
from vdl_ros.attacks import boundary as drawn
from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.attacks.boundary import boundaries, most_frequent
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make as make_env
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config
from vdl_ros.tools import boundary

FGSM = AttackConfig('fgsm', 0.1)


@pytest.fixture
def found(make, monkeypatch):
    """Return a function that returns boundaries of CartPole in pixels."""
    monkeypatch.setattr(drawn, '_GRID', 21)

    def run(attack=FGSM, frames=2, folded=None, env_id='vdl_ros/CartPolePixels-v0', **settings):
        envs = make_env(EnvConfig(env_id=env_id), 0, num_envs=1)
        policy = make(envs.single_observation_space, envs.single_action_space, **settings)
        try:
            return list(boundaries(envs, policy, attack, frames=frames, seed=0,
                                   folded=folded)), policy
        finally:
            envs.close()
    return run


def test_the_plane_goes_through_the_observation_and_the_attack(found):
    boundaries_, policy = found(network='universe', lstm_size=4)
    assert len(boundaries_) == 2
    first = boundaries_[0]
    # 0.1 in each of n numbers, but for those of the white background that it would raise.
    assert 0.5 < first.norm / (0.1 * np.sqrt(3 * 42 * 42)) < 0.9
    assert first.axis[[0, 10, 20]] == pytest.approx([-2 * first.norm, 0.0, 2 * first.norm])
    clean, attacked, noisy = first.images
    assert np.linalg.norm(attacked - clean) == pytest.approx(first.norm, rel=1e-4)
    assert np.linalg.norm(noisy - clean) == pytest.approx(first.norm, rel=1e-4)
    assert (noisy >= clean).all()
    # Where the policy is sure, what it samples is its most likely action.
    start = torch.ones(1, 1, dtype=torch.bool), policy.initial_state(1)
    for place, image in (((10, 10), clean), ((10, 15), attacked), ((15, 10), noisy)):
        with torch.no_grad():
            logits = policy(torch.from_numpy(image)[None, None], *start).parameters[0, 0]
        if abs(logits[0] - logits[1]) > 4.0:
            assert first.actions[place] == int(logits.argmax())


def test_boundaries_are_repeated_by_their_seed_and_actions_can_be_folded(found):
    (one, *_), _ = found(network='universe')
    (again, *_), _ = found(network='universe')
    assert np.array_equal(one.actions, again.actions)
    assert len(np.unique(one.actions)) == 2
    (folded, *_), _ = found(network='universe', folded={1: 0})
    assert not folded.actions.any()
    # Of several actions the smallest is noted.
    actions = np.array([[0, 2, 1], [1, 2, 1], [1, 0, 0], [0, 2, 2]])
    assert most_frequent(actions, 3).tolist() == [0, 2, 1]


def test_only_perturbed_observations_count_and_what_has_no_boundary_is_refused(found):
    boundaries_, _ = found(AttackConfig('fgsm_skip3', 0.1), frames=3, env_id='CartPole-v1')
    assert [each.step for each in boundaries_[:3]] == [0, 3, 6]
    for attack, env_id, message in (
            (AttackConfig(), 'CartPole-v1', "^adversarial_mode: 'none' is not allowed"),
            (FGSM, 'vdl/Reach1D-v0', '^actions: Box.* is not allowed: one discrete action')):
        with pytest.raises(SettingError, match=message):
            found(attack, env_id=env_id)


@pytest.fixture
def checkpoint(tmp_path):
    config = TrainConfig(network='universe', total_steps=20, unroll_length=5)
    local_training.train(
        EnvConfig(env_id='vdl_ros/CartPolePixels-v0', num_envs=2), config,
        make_algorithm_config(config, {}), tmp_path / 'run', threading.Event())
    return tmp_path / 'run' / 'checkpoint.pt'


def test_every_frame_is_written_in_three_forms_and_an_error_is_one_line(
        tmp_path, capsys, checkpoint, monkeypatch):
    monkeypatch.setattr(drawn, '_GRID', 11)
    output = tmp_path / 'out'
    options = ['--checkpoint', str(checkpoint), '--frames', '2', '--output', str(output)]
    capsys.readouterr()
    assert boundary.main(options) == 0
    assert {path.name for path in output.glob('[!.]*')} == {
        f'{number:03}.{ending}' for number in range(2) for ending in ('npy', 'png', 'pdf')}
    actions = np.load(output / '001.npy')
    assert actions.shape == (11, 11)
    assert set(np.unique(actions)) <= {0, 1}
    with Image.open(output / '001.png') as picture:
        assert len(picture.convert('RGB').getcolors(1 << 20)) > 20
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert boundary.main(options) == 2
    assert capsys.readouterr().err == f'boundary: --output: {output} is not empty\n'

    for change, message in (
            (['--adversarial_mode', 'fgsmm'], "adversarial_mode: 'fgsmm' is not allowed"),
            (['--adversarial_epsilon', 'big'],
             "adversarial_epsilon: 'big' is not allowed: a number"),
            (['--checkpoint', 'nowhere.pt'], 'nowhere.pt')):
        assert boundary.main([*options, '--output', str(tmp_path / 'none'), *change]) == 2, message
        error = capsys.readouterr().err
        assert error.startswith('boundary: ')
        assert message in error
        assert error.count('\n') == 1, message
