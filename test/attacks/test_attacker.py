"""The schedule of attacks, the attack's own state, and its path to a gradient."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.attacks.attacker import Attacker
from vdl_ros.attacks.victim import PolicyVictim, Seen
from vdl_ros.rl.policy.weights import load_weights, weights

B = 3
NUMBERS = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
FORCES = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


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


def test_noise_changes_in_every_step_without_a_policy():
    attacker = attack('random')
    found = [attacker.perturb(images(0), None, resets()) for _ in range(2)]
    for each in found:
        assert each.injects.all()
        noise = each.image - images(0)
        assert 0.0 <= noise.min() < noise.max() <= 0.05 + 1e-6
        # The root mean square of a uniform number from 0 to e is e / sqrt(3).
        np.testing.assert_allclose(each.l2, 0.05 / 3 ** 0.5, rtol=0.05)
    assert not torch.equal(found[0].image, found[1].image)


def test_other_modes_wait_for_a_policy(make):
    attacker = attack('fgsm')
    waiting = attacker.perturb(images(0), None, resets(0, 1, 2))
    assert torch.equal(waiting.image, images(0))
    assert not waiting.injects.any()
    assert not waiting.l2.any()
    attacker.follow(PolicyVictim(make(network='universe')))
    attacked = attacker.perturb(images(1), None, resets())
    assert attacked.injects.all()
    np.testing.assert_allclose(attacked.l2, 0.05, rtol=1e-4)


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
        for step, b in np.argwhere(~np.array(injected)):
            assert not noises[step][b].any()
        return
    assert np.all(injected)
    for step in range(1, 7):
        for b in range(B):
            same = torch.allclose(noises[step][b], noises[step - 1][b], atol=1e-6)
            assert same == (not computed[step][b]), (step, b)


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
    assert found.injects.tolist() == (values > limit).tolist()
    assert found.injects.sum() == 1
    assert ((found.l2 > 0) == found.injects).all()


@pytest.mark.parametrize('last_action_reward', [False, True])
@pytest.mark.parametrize('mode', ['fgsm', 'fgsm_skip2', 'fgsm_vf'])
def test_its_state_is_that_of_the_attacked_policy_and_is_cut_at_resets(
        make, mode, last_action_reward):
    policy = make(network='universe', lstm_size=8, last_action_reward=last_action_reward)
    attacker = attack(mode, policy, adversarial_value=0.0)
    state = policy.initial_state(B)
    rewards = np.array([0.5, -2.0, 0.0], np.float32)
    for step in range(5):
        is_reset = resets(0, 1, 2) if step == 0 else resets(2) if step == 3 else resets()
        seen = attacker.perturb(images(step), None, is_reset)
        with torch.no_grad():
            _, _, state = policy(seen.image[None], is_reset[None], state)
            torch.testing.assert_close(attacker._state, state)
            actions = np.array([step % 4, 1, 2])
            state = policy.append_last_action(
                state, torch.from_numpy(actions), torch.from_numpy(rewards))
        attacker.append_last_action(actions, rewards)
    assert attacker._state.abs().sum() > 0


@pytest.mark.parametrize('mode', ['fgsm', 'pgd', 'pgd_l2'])
@pytest.mark.parametrize(('actions', 'settings'), [
    (gymnasium.spaces.Discrete(4), {}), (gymnasium.spaces.MultiDiscrete([3, 2]), {}),
    (FORCES, {}), (FORCES, {'action_distribution': 'squashed'}),
    (gymnasium.spaces.Discrete(4), {'algorithm': 'dqn'})],
    ids=['discrete', 'parts', 'forces', 'squashed', 'values'])
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


@pytest.mark.parametrize('lstm_size', [0, 8])
def test_there_is_a_gradient_although_acting_is_in_inference_mode_and_bfloat16(make, lstm_size):
    policy = make(network='universe', precision='bfloat16', lstm_size=lstm_size)
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


def test_the_same_seed_gives_the_same_noise(make):
    policy = make(NUMBERS, FORCES)
    found = [attack('fgsm', policy).perturb(torch.zeros(B, 4), None, resets()).image
             for _ in range(2)]
    assert torch.equal(*found)
