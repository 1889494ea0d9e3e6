"""Attacks on camera images: gradients derived by hand, what becomes of bytes, bad modes."""

import numpy as np
import pytest
import torch
from torch import nn

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.attacks.attacker import Seen, gradient
from vdl_ros.attacks.pose_attack import ImageAttack, PoseVictim, warning
from vdl_ros.common.settings import SettingError
from vdl_ros.pose.dataset import SIZE
from vdl_ros.pose.estimator import PoseEstimator
from vdl_ros.pose.networks import ENCODED, Raw

PIXELS = 3 * SIZE * SIZE
#: Of the joints when a picture is flipped.
SIGNS = torch.tensor([-1.0, 1.0, 1.0])
WIDE = np.random.default_rng(3).integers(40, 210, (160, 200, 3), np.uint8)


class Tiny(nn.Module):
    """A network whose joint angles are arcus tangents of sums over the pixels."""

    def __init__(self):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.weights = torch.randn(3, 3, SIZE, SIZE, generator=random) / SIZE

    def sums(self, pictures):
        return torch.einsum('jchw,bchw->bj', self.weights, pictures)

    def forward(self, pictures):
        encoded = torch.zeros(len(pictures), ENCODED)
        # Distance, then sine and cosine of two angles of the camera and three joints.
        encoded[:, 2::2] = 1.0
        return Raw(encoded.index_copy(1, torch.tensor([5, 7, 9]), self.sums(pictures)),
                   torch.zeros(len(pictures), 6), torch.zeros(0))


TINY = Tiny()


@pytest.fixture
def estimator():
    return PoseEstimator(TINY, 'tiny', threshold=10.0)


def loss_of(estimator, images):
    """Return the loss of float images [B, H, H, 3] as a function of others."""
    victim = PoseVictim(estimator)
    count = len(images)
    seen = Seen(images, None, torch.zeros(count, dtype=torch.bool), torch.zeros(count, 0))
    angles = victim.best_actions(victim.output(images, seen))
    return lambda at: victim.loss(victim.output(at, seen), angles)


def attack(estimator, mode, epsilon=0.01, **more):
    return ImageAttack(AttackConfig(
        adversarial_mode=mode, adversarial_epsilon=epsilon, **more), estimator)


def test_the_gradient_of_a_tiny_network_is_the_derived_one(estimator):
    images = torch.rand(2, SIZE, SIZE, 3, generator=torch.Generator().manual_seed(1))
    found = gradient(loss_of(estimator, images), images)
    pictures = images.permute(0, 3, 1, 2)
    # q = (atan s(x) + m atan s(x')) / 2, x' the mirror image; d atan s / d s = 1 / (1 + s²).
    here, there = (1.0 / (1.0 + TINY.sums(each) ** 2) for each in (pictures, pictures.flip(3)))
    expected = 0.5 * (torch.einsum('bj,jchw->bchw', here, TINY.weights) + torch.einsum(
        'bj,j,jchw->bchw', there, SIGNS, TINY.weights.flip(3)))
    torch.testing.assert_close(found, expected.permute(0, 2, 3, 1), rtol=1e-3, atol=1e-6)


def test_the_gradient_goes_through_the_scaling_of_a_larger_image(estimator):
    images = torch.from_numpy(WIDE[None, :, 20:180].astype(np.float32) / 255.0)
    loss = loss_of(estimator, images)
    found = gradient(loss, images)
    step = 0.003 / found.abs().max() * found
    rise = (loss(images + step) - loss(images - step)) / 2.0
    torch.testing.assert_close(rise, (step * found).sum().reshape(1), rtol=0.02, atol=0.0)


@pytest.mark.parametrize('mode', ['random', 'fgsm', 'pgd', 'pgd_l2'])
def test_bytes_change_by_at_most_epsilon_where_the_network_looks(estimator, mode):
    before = WIDE.copy()
    found = attack(estimator, mode, 0.01).perturb(WIDE)
    change = found.pixels.astype(int) - WIDE
    # 0.01 is 2.55 bytes.
    assert np.abs(change).max() == 2 or mode == 'pgd_l2'
    assert not change[:, :20].any()
    assert not change[:, 180:].any()
    assert found.changed
    assert 0.0 < found.l2 <= 0.01
    assert found.l2 == pytest.approx(np.sqrt(np.mean(change[:, 20:180] ** 2)) / 255.0, rel=1e-5)
    assert np.array_equal(WIDE, before)
    # The brightest and darkest bytes do not wrap around.
    ends = np.where(WIDE > 125, 255, 0).astype(np.uint8)
    found = attack(estimator, 'fgsm', 0.02).perturb(ends)
    assert np.abs(found.pixels.astype(int) - ends).max() == 5


def test_a_patch_covers_a_corner_of_what_the_network_sees(estimator):
    patch = attack(estimator, 'patch', 0.1, adversarial_patch=0.25)
    for height, rows, columns in ((160, 40, slice(20, 60)), (100, 25, slice(50, 75))):
        image = WIDE[:height]
        changed = (patch.perturb(image).pixels != image).any(axis=2)
        assert changed[:rows, columns].mean() > 0.9
        changed[:rows, columns] = False
        assert not changed.any()


def test_an_attack_below_the_distance_of_two_bytes_is_a_warning_and_changes_nothing(estimator):
    small = AttackConfig(adversarial_mode='fgsm', adversarial_epsilon=0.003)
    assert '1/255 = 0.0039' in warning(small)
    found = ImageAttack(small, estimator).perturb(WIDE)
    assert not found.changed
    assert np.array_equal(found.pixels, WIDE)
    for mode, epsilon in (('fgsm', 0.004), ('patch', 0.001)):
        assert not warning(AttackConfig(adversarial_mode=mode, adversarial_epsilon=epsilon))


def test_modes_that_images_cannot_have_are_refused(estimator):
    for mode, reason in (('none', "adversarial_mode: 'none' is not allowed here"),
                         ('fgms', "adversarial_mode: 'fgms' is not allowed: none, random"),
                         ('fgsm_vf', 'a pose network has no value')):
        with pytest.raises(SettingError, match=reason):
            attack(estimator, mode)
