"""Perturbations as derived by hand and by another library; schedules and states of attacks."""

import foolbox
import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig, verify_attack
from vdl_ros.attacks.attacker import Attacker, Patch, PolicyVictim, Seen, fgsm, pgd
from vdl_ros.common.settings import SettingError
from vdl_ros.rl.policy.policy import load_weights, weights
from vdl_ros.rl.settings import TrainConfig

B = 3
NUMBERS = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
FORCES = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
UNIT = torch.ones(())


def attack(mode, policy=None, epsilon=0.05, **settings):
    attacker = Attacker(
        AttackConfig(adversarial_mode=mode, adversarial_epsilon=epsilon, **settings), B,
        torch.Generator().manual_seed(0))
    if policy is not None:
        attacker.follow(PolicyVictim(policy))
    return attacker


def images(step):
    return torch.rand(B, 3, 42, 42, generator=torch.Generator().manual_seed(step))


def resets(*where):
    found = torch.zeros(B, dtype=torch.bool)
    found[list(where)] = True
    return found


@pytest.mark.parametrize(('ours', 'theirs'), [
    (lambda loss, inputs: fgsm(loss, inputs, 0.03, UNIT),
     foolbox.attacks.LinfFastGradientAttack()),
    (lambda loss, inputs: pgd(loss, inputs, 0.03, UNIT, 5, bounded=True),
     foolbox.attacks.LinfPGD(rel_stepsize=2.5 / 5, steps=5, random_start=False)),
    (lambda loss, inputs: pgd(loss, inputs, 0.03, UNIT, 5, l2=True, bounded=True),
     foolbox.attacks.L2PGD(rel_stepsize=2.5 / 5, steps=5, random_start=False)),
], ids=['fgsm', 'pgd', 'pgd_l2'])
def test_attacks_on_a_policy_are_those_of_foolbox(make, ours, theirs):
    victim = PolicyVictim(make(network='universe'))
    inputs = images(1)
    seen = Seen(inputs, None, torch.zeros(3, dtype=torch.bool), torch.zeros(3, 0))

    class Logits(nn.Module):
        def forward(self, inputs):
            return victim.output(inputs, seen).parameters

    labels = victim.best_actions(victim.output(inputs, seen))
    found = ours(lambda at: victim.loss(victim.output(at, seen), labels), inputs)
    model = foolbox.PyTorchModel(Logits().eval(), bounds=(0.0, 1.0))
    epsilon = 0.03 * (np.sqrt(3 * 42 * 42) if isinstance(theirs, foolbox.attacks.L2PGD) else 1.0)
    expected, _, _ = theirs(model, inputs, labels, epsilons=[epsilon])
    torch.testing.assert_close((inputs + found).clamp(0, 1), expected[0], rtol=0, atol=2e-6)
    assert (victim.output(expected[0], seen).parameters.argmax(-1) != labels).any()


@pytest.mark.parametrize('channels_last', [False, True])
def test_a_patch_changes_its_corner_in_all_images_alike_and_learns(channels_last):
    shape, rows, columns = (40, 50, 3) if channels_last else (3, 40, 50), 8, 10
    patch = Patch(shape, 0.2, channels_last)
    pictures = torch.rand(2, *shape, generator=torch.Generator().manual_seed(1))
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


def test_unknown_modes_and_contradictions_are_refused():
    for mode in ('', 'FGSM', 'fgsm_skip', 'fgsm_skip0', 'fgsm_reuse12345'):
        with pytest.raises(SettingError, match=f"^adversarial_mode: '{mode}' is not allowed: "):
            verify_attack(AttackConfig(mode), TrainConfig())
    exact = TrainConfig(precision='bfloat16')
    assert verify_attack(AttackConfig(), exact) == exact
    assert verify_attack(AttackConfig('fgsm'), TrainConfig()).precision == 'float32'
    central = TrainConfig(inference='learner')
    for mode, train, surrogate, message in (
            ('fgsm', exact, None, "^precision: 'bfloat16' is not allowed with advers"),
            ('fgsm_vf', TrainConfig(algorithm='sac'), None,
             "^adversarial_mode: 'fgsm_vf' is not allowed with alg"),
            # Actors have no weights.
            ('fgsm_skip5', central, SurrogateConfig(),
             "^adversarial_mode: 'fgsm_skip5' is not allowed with ")):
        with pytest.raises(SettingError, match=message):
            verify_attack(AttackConfig(mode), train, surrogate)
    surrogate = SurrogateConfig(adversarial_checkpoint='other.pt')
    assert verify_attack(AttackConfig('fgsm'), central, surrogate).inference == 'learner'
    assert verify_attack(AttackConfig('random'), central, SurrogateConfig())
    # The learner does not know what its actors have.
    assert verify_attack(AttackConfig('fgsm'), central)


def test_noise_needs_no_policy_and_other_modes_wait_for_one(make):
    attacker = attack('random')
    found = [attacker.perturb(images(0), None, resets()) for _ in range(2)]
    for each in found:
        assert each.injects.all()
        # The root mean square of a uniform number from 0 to e, as of rl-attack-vf: e / sqrt(3).
        np.testing.assert_allclose(each.l2, 0.05 / 3 ** 0.5, rtol=0.05)
        assert (each.image >= images(0)).all()
    assert not torch.equal(found[0].image, found[1].image)
    attacker = attack('fgsm')
    waiting = attacker.perturb(images(0), None, resets(0, 1, 2))
    assert torch.equal(waiting.image, images(0))
    assert not waiting.injects.any()
    assert not waiting.l2.any()
    attacker.follow(PolicyVictim(make(network='universe')))
    assert attacker.perturb(images(1), None, resets()).injects.all()


@pytest.mark.parametrize('mode', ['fgsm_skip3', 'fgsm_reuse3'])
def test_a_period_counts_from_the_start_of_each_episode(make, mode):
    attacker = attack(mode, make(network='universe'))
    injected, noises = [], []
    for step in range(7):
        # Environment 1 starts an episode in step 2.
        where = (0, 1, 2) if step == 0 else (1,) if step == 2 else ()
        found = attacker.perturb(images(step), None, resets(*where))
        injected.append(found.injects.tolist())
        noises.append(found.image - images(step))
    computed = [[step % 3 == 0, step % 3 == 0 if step < 2 else (step - 2) % 3 == 0, step % 3 == 0]
                for step in range(7)]
    if mode == 'fgsm_skip3':
        assert injected == computed
        assert not any(noises[step][b].any() for step, b in np.argwhere(~np.array(injected)))
        return
    assert np.all(injected)
    for step, b in np.ndindex(6, B):
        same = torch.allclose(noises[step + 1][b], noises[step][b], atol=1e-6)
        assert same == (not computed[step + 1][b]), (step, b)


def test_what_is_reused_must_have_been_computed(make):
    attacker = attack('fgsm_reuse3')
    attacker.perturb(images(0), None, resets(0, 1, 2))
    attacker.follow(PolicyVictim(make(network='universe')))
    # Only environment 1 starts an episode after there is a policy.
    found = [attacker.perturb(images(step), None, resets(1) if step == 1 else resets())
             for step in range(1, 5)]
    for each, expected in zip(found, [[1]] * 2 + [[0, 1, 2]] * 2, strict=True):
        assert np.flatnonzero(each.injects).tolist() == expected
        assert ((each.l2 > 0) == each.injects).all()


def test_the_value_decides_which_observations_are_perturbed(make):
    policy = make(network='universe')
    with torch.no_grad():
        values = policy(images(0)).values
    limit = float(values.sort().values[1])
    found = attack('fgsm_vf', policy, adversarial_value=limit).perturb(
        images(0), None, resets(0, 1, 2))
    assert found.injects.tolist() == (found.l2 > 0).tolist() == (values > limit).tolist()
    assert found.injects.sum() == 1


@pytest.mark.parametrize(('mode', 'last_action_reward', 'space'), [
    ('fgsm', False, gymnasium.spaces.Discrete(4)), ('fgsm_vf', True, gymnasium.spaces.Discrete(4)),
    ('fgsm_skip2', True, gymnasium.spaces.Box(0, 10, (1,)))], ids=str)
def test_its_state_is_that_of_the_attacked_policy_and_is_cut_at_resets(
        make, mode, last_action_reward, space):
    policy = make(
        actions=space, network='universe', lstm_size=8, last_action_reward=last_action_reward)
    attacker = attack(mode, policy, adversarial_value=0.0)
    state = policy.initial_state(B)
    rewards = np.array([0.5, -2.0, 0.0], np.float32)
    for step in range(5):
        is_reset = resets(0, 1, 2) if step == 0 else resets(2) if step == 3 else resets()
        seen = attacker.perturb(images(step), None, is_reset)
        with torch.no_grad():
            _, _, state = policy(seen.image[None], is_reset[None], state)
            torch.testing.assert_close(attacker._state, state)
            actions, own = np.array([step % 4, 1, 2]), np.array([step % 4, 1, 2])
            if space.shape:
                own = np.full((B, 1), step / 10, np.float32)
                actions = 5.0 + 5.0 * own
            state = policy.append_last_action(
                state, torch.from_numpy(own), torch.from_numpy(rewards))
        attacker.append_last_action(actions, rewards)
    assert attacker._state.abs().sum() > 0


@pytest.mark.parametrize(('mode', 'actions', 'settings'), [
    ('fgsm', gymnasium.spaces.MultiDiscrete([3, 2]), {}), ('pgd_l2', FORCES, {}),
    ('fgsm', FORCES, {'action_distribution': 'squashed'}),
    ('pgd', gymnasium.spaces.Discrete(4), {'algorithm': 'dqn'})],
    ids=['parts', 'forces', 'squashed', 'values'])
def test_it_makes_the_best_actions_less_likely_in_every_action_space(
        make, mode, actions, settings):
    policy = make(NUMBERS, actions, **settings)
    clean = torch.rand(B, 4, generator=torch.Generator().manual_seed(3))
    found = attack(mode, policy).perturb(clean, None, resets(0, 1, 2))
    victim = PolicyVictim(policy)
    with torch.no_grad():
        before, after = policy(clean), policy(found.image)
        best = victim.best_actions(before)
        assert (victim.loss(after, best) > victim.loss(before, best)).all()
    assert (found.l2 > 0).all()


def test_a_policy_that_is_sure_has_a_gradient_nevertheless(make):
    policy = make(network='universe')
    with torch.no_grad():
        policy.policy_head.bias[2] += 1000.0
        assert (policy(images(0)).parameters.softmax(-1)[:, 2] == 1.0).all()
    found = attack('fgsm', policy).perturb(images(0), None, resets(0, 1, 2))
    np.testing.assert_allclose(found.l2, 0.05, rtol=1e-3)


def test_numbers_are_perturbed_in_their_standard_deviations(make):
    policy = make(NUMBERS, normalize_observations=True)
    deviations = torch.tensor([1.0, 10.0, 0.1, 5.0])
    policy.normalizer.update(torch.randn(5000, 4) * deviations)
    clean = torch.zeros(B, 4)
    found = attack('fgsm', policy, epsilon=0.2).perturb(clean, None, resets(0, 1, 2))
    torch.testing.assert_close(
        found.image.abs(), (0.2 * deviations).expand(B, 4), rtol=0.05, atol=0)
    np.testing.assert_allclose(found.l2, 0.2, rtol=1e-4)


def test_there_is_a_gradient_although_acting_is_in_inference_mode_and_bfloat16(make):
    policy = make(network='universe', precision='bfloat16', lstm_size=8)
    attacker = attack('fgsm', policy, epsilon=0.001)
    with torch.inference_mode():
        for step in range(2):
            found = attacker.perturb(images(step), None, resets(0, 1, 2))
            attacker.append_last_action(np.zeros(B, np.int64), np.zeros(B, np.float32))
            np.testing.assert_allclose(found.l2, 0.001, rtol=1e-3)
    assert policy.precision == torch.bfloat16
    assert all(each.grad is None for each in policy.parameters())


def test_weights_that_the_policy_loads_later_count(make):
    policy = make(network='universe', lstm_size=8)
    victim = PolicyVictim(policy)
    load_weights(policy, {name: array + (array.dtype.kind == 'f') * np.float32(0.01)
                          for name, array in weights(policy).items()})
    seen = Seen(images(0), None, resets(0, 1, 2), victim.initial_state(B))
    with torch.no_grad():
        expected = policy(images(0)[None], seen.is_reset[None], seen.state).parameters[0]
        torch.testing.assert_close(victim.output(images(0), seen).parameters, expected)
