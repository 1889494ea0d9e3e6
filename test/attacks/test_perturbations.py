"""Perturbations: hand-derived gradients, another library's results, norms, the patch."""

import foolbox
import numpy as np
import pytest
import torch
from torch import nn

from vdl_ros.attacks.attacker import (
    Patch,
    PolicyVictim,
    Seen,
    fgsm,
    gradient,
    pgd,
    pgd_l2,
    random_noise,
)

UNIT = torch.ones(())


def images(count, *shape):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def cross_entropy(network, labels):
    return lambda inputs: nn.functional.cross_entropy(network(inputs), labels, reduction='none')


def test_the_gradient_of_a_linear_network_is_the_derived_one_and_noise_that_of_rl_attack_vf():
    network = nn.Linear(5, 3)
    inputs, labels = images(4, 5), torch.tensor([0, 2, 1, 0])
    found = gradient(cross_entropy(network, labels), inputs)
    # d CE / d x = W^T (p - 1 at the label).
    wrong = network(inputs).softmax(-1) - nn.functional.one_hot(labels, 3)
    expected = (wrong @ network.weight).detach()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        fgsm(cross_entropy(network, labels), inputs, 0.1, UNIT), 0.1 * expected.sign())
    noise = random_noise(torch.zeros(1000, 10), 0.2, torch.Generator().manual_seed(0))
    assert 0.0 <= noise.min() < 0.01
    assert 0.19 < noise.max() < 0.2
    assert noise.mean().item() == pytest.approx(0.1, abs=0.002)


@pytest.mark.parametrize(('ours', 'theirs'), [
    (lambda loss, inputs: fgsm(loss, inputs, 0.03, UNIT),
     foolbox.attacks.LinfFastGradientAttack()),
    (lambda loss, inputs: pgd(loss, inputs, 0.03, UNIT, 5),
     foolbox.attacks.LinfPGD(rel_stepsize=2.5 / 5, steps=5, random_start=False)),
    (lambda loss, inputs: pgd_l2(loss, inputs, 0.03, UNIT, 5),
     foolbox.attacks.L2PGD(rel_stepsize=2.5 / 5, steps=5, random_start=False)),
], ids=['fgsm', 'pgd', 'pgd_l2'])
def test_attacks_on_a_policy_are_those_of_foolbox(make, ours, theirs):
    victim = PolicyVictim(make(network='universe'))
    inputs = images(3, 3, 42, 42)
    seen = Seen(inputs, None, torch.zeros(3, dtype=torch.bool), torch.zeros(3, 0))

    class Logits(nn.Module):
        def forward(self, inputs):
            return victim.output(inputs, seen).parameters

    labels = victim.best_actions(victim.output(inputs, seen))
    found = ours(lambda at: victim.loss(victim.output(at, seen), labels), inputs)
    # Bounds that nothing reaches: rl-attack-vf does not clip.
    model = foolbox.PyTorchModel(Logits().eval(), bounds=(-10.0, 10.0))
    epsilon = 0.03 * (np.sqrt(3 * 42 * 42) if isinstance(theirs, foolbox.attacks.L2PGD) else 1.0)
    expected, _, _ = theirs(model, inputs, labels, epsilons=[epsilon])
    torch.testing.assert_close(inputs + found, expected[0], rtol=0, atol=2e-6)
    assert (victim.output(expected[0], seen).parameters.argmax(-1) != labels).any()


@pytest.mark.parametrize('channels_last', [False, True])
def test_a_patch_changes_its_corner_in_all_images_alike_and_learns(channels_last):
    shape, rows, columns = (40, 50, 3) if channels_last else (3, 40, 50), 8, 10
    patch, pictures = Patch(shape, 0.2, channels_last), images(2, *shape)
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(2))

    def loss(inputs):
        return (inputs * weights).flatten(1).sum(1)

    before = loss(patch.apply(pictures)).sum()
    for _ in range(30):
        patch.learn(loss, pictures, 0.1)
    shown = patch.apply(pictures)
    assert loss(shown).sum() > before
    assert set(patch.pixels.flatten().tolist()) <= {0.0, 0.5, 1.0}
    changed = shown != pictures
    if not channels_last:
        changed, shown = changed.movedim(1, -1), shown.movedim(1, -1)
    assert not changed[:, rows:].any()
    assert not changed[:, :, columns:].any()
    assert changed[:, :rows, :columns].all()
    assert torch.equal(shown[0, :rows, :columns], shown[1, :rows, :columns])
