"""SAC: the three losses and whose gradients they are, the temperature, and the target critics."""

import copy
import dataclasses
import math

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from vdl_ros.common.observation_spaces import ImageAndVector, MirroredBox
from vdl_ros.rl.algorithms.algorithm import Mirror
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.policy import networks
from vdl_ros.rl.settings import make_algorithm_config

ACTIONS = gymnasium.spaces.Discrete(4)
MOTORS = gymnasium.spaces.MultiDiscrete([3, 2])
FORCES = gymnasium.spaces.Box(np.array([-1, 0], np.float32), np.array([1, 5], np.float32))
SEEN = ImageAndVector(gymnasium.spaces.Box(0, 255, (36, 40, 3), np.uint8), 2)
SMALL = {'replay_size': 72, 'replay_start': 1, 'replay_batch': 32, 'replay_ratio': 2.0}


@pytest.mark.parametrize(('actions', 'taken', 'image'), [
    (MOTORS, [[0, 1], [2, 1]], [[2, 1], [0, 1]]), (ACTIONS, [0, 3], [3, 0]),
    (FORCES, [[0.5, 2.0], [-1.0, 0.0]], [[-0.5, 2.0], [1.0, 0.0]])])
def test_a_step_of_a_task_with_a_mirror_is_itself_or_its_image(actions, taken, image):
    space = MirroredBox([-1, -1], [1, 1], [1, -1], [-1, 1] if actions.shape else [-1])
    mirror = Mirror(space, UnrollSchema(space, actions, 8, 1), 1, torch.device('cpu'))
    seen, found = torch.tensor([[0.1, 0.2], [0.3, 0.4]]), set()
    for _ in range(20):
        acts, before, after = mirror(torch.tensor(taken), seen, 2.0 * seen)
        assert torch.equal(after, 2.0 * before)
        for step in range(2):
            is_image = bool(before[step, 1] < 0.0)
            signs = torch.tensor([1.0, -1.0 if is_image else 1.0])
            assert torch.equal(before[step], signs * seen[step])
            assert acts[step].tolist() == (image if is_image else taken)[step]
            found.add((step, is_image))
    assert len(found) == 4


@pytest.fixture
def learn(spaces, config, random_unroll):
    """Return a function that makes a learner and a batch for an action space."""
    def make(actions, *, normalize_observations=False, group=None, **options):
        settings = config('sac', normalize_observations=normalize_observations)
        learner = Learner(
            settings, spaces[0], actions, group=group,
            algorithm_config=make_algorithm_config(settings, {**SMALL, **options}))
        unrolls = [random_unroll(seed) for seed in range(3)]
        if actions is FORCES:
            rng = np.random.default_rng(0)
            unrolls = [dataclasses.replace(each, arrays={
                **each.arrays, 'actions': rng.normal(size=(8, 3, 2)).astype(np.float32)})
                for each in unrolls]
        if actions is MOTORS:
            rng = np.random.default_rng(0)
            unrolls = [dataclasses.replace(each, arrays={
                **each.arrays, 'actions': rng.integers([3, 2], size=(8, 3, 2))})
                for each in unrolls]
        torch.manual_seed(7)
        with torch.no_grad():
            for parameter in (*learner.algorithm.target.parameters(),
                              *learner.policy.parameters()):
                parameter += 0.3 * torch.randn_like(parameter)
        return learner, make_batch(unrolls, learner.schema)
    return make


def soft_values(policy, critics, observations, alpha, noise):
    """Return of each observation the soft value and the entropy, in plain words."""
    values, entropies = [], []
    for x, e in zip(observations, noise, strict=True):
        parameters = policy(x).parameters
        if len(parameters) == 4 and e is None:
            probs = torch.softmax(parameters, -1)
            q = torch.minimum(*critics(x[None], None))[0]
            values.append(sum(probs[a] * (q[a] - alpha * probs[a].log()) for a in range(4)))
            entropies.append(-sum(probs[a] * probs[a].log() for a in range(4)))
            continue
        if e is None:
            probs, q = [each.softmax(-1) for each in parameters.split([3, 2])], critics(
                x[None], None)[:, 0].split([3, 2], -1)
            entropies.append(-sum((each * each.log()).sum() for each in probs))
            values.append(alpha * entropies[-1] + torch.minimum(*sum(
                of_part @ each for of_part, each in zip(q, probs, strict=True))))
            continue
        mean, std = parameters[:2], parameters[2:].exp()
        u = mean + std * e
        y = torch.tanh(u)
        # The normal density, divided by the slope of tanh.
        log_prob = sum(
            -0.5 * ((u[i] - mean[i]) / std[i]) ** 2 - std[i].log() - 0.5 * math.log(2 * math.pi)
            - (1 - y[i] ** 2).log() for i in range(2))
        q = torch.minimum(*critics(x[None], None, y[None]))[0, 0]
        values.append(q - alpha * log_prob)
        entropies.append(-log_prob)
    return torch.stack(values), torch.stack(entropies)


@pytest.mark.parametrize(('actions', 'n'), [
    (ACTIONS, 1), (ACTIONS, 3), (MOTORS, 3), (FORCES, 3)], ids=str)
def test_losses_and_gradients_are_those_of_the_definition(learn, actions, n):
    learner, batch = learn(actions, n_step=n, temperature=0.3)
    sac, policy = learner.algorithm, learner.policy
    replay = Replay(learner.schema, 72, 0.9, n, 0.0)
    replay.add(batch, batch.rewards)
    places = torch.nonzero(replay.valid)
    sample, count = Sample(*places.T, torch.ones(len(places))), len(places)
    rewards, factors, later = (each[sample.column, sample.time] for each in (
        replay.returns, replay.factors, replay.times))
    assert 0.0 in factors
    assert len(factors.unique()) == (2 if n == 1 else 4)
    observations = batch.observations[sample.time, sample.column]
    following = batch.observations[later, sample.column]
    taken = batch.actions[sample.time, sample.column]
    target_entropy = -2.0 if actions is FORCES else 0.5 * math.log(4 if actions is ACTIONS else 6)

    torch.manual_seed(1)
    noise = [[None] * count] * 2
    if actions is FORCES:
        noise = [torch.randn(count, 2), torch.randn(count, 2)]
    later_values, _ = soft_values(policy, sac.target, following, 0.3, noise[0])
    values, entropies = soft_values(policy, sac.critics, observations, 0.3, noise[1])
    targets = (rewards + factors * later_values).detach()
    critic_loss = 0.0
    for x, action, target in zip(observations, taken, targets, strict=True):
        if actions is FORCES:
            q = sac.critics(x[None], None, action.tanh()[None])[:, 0, 0]
        else:
            q = sac.critics(x[None], None)[:, 0]
            q = q[:, action] if actions is ACTIONS else q[:, action[0]] + q[:, 3 + action[1]]
        critic_loss = critic_loss + ((q[0] - target) ** 2 + (q[1] - target) ** 2) / 2 / count
    policy_loss = -values.mean()
    temperature_loss = 0.3 * (entropies.mean().detach() - target_entropy)

    def gradients(loss, parameters):
        found = torch.autograd.grad(loss, list(parameters), retain_graph=True)
        return torch.cat([each.flatten() for each in found])

    expected = [gradients(critic_loss, sac.critics.parameters()),
                gradients(policy_loss, policy.parameters())]
    torch.manual_seed(1)
    loss, parts = sac.loss(replay, sample)
    torch.testing.assert_close(loss, critic_loss + policy_loss + temperature_loss,
                               rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(parts['losses/entropy'], entropies.mean(), rtol=1e-4, atol=1e-5)
    # Each loss has a gradient in its own parameters alone.
    for network, gradient in zip((sac.critics, policy), expected, strict=True):
        assert gradient.abs().max() > 1e-3
        torch.testing.assert_close(
            gradients(loss, network.parameters()), gradient, rtol=1e-3, atol=1e-5)
    # By log alpha; alpha is its own derivative.
    torch.testing.assert_close(
        gradients(loss, [sac.log_temperature])[0], temperature_loss, rtol=1e-4, atol=1e-5)
    assert not any(each.requires_grad for each in sac.target.parameters())


def test_a_huge_error_has_a_bounded_gradient(learn):
    learner, batch = learn(FORCES)
    learner.algorithm._replay.add(batch, batch.rewards.abs() * 1e9)
    replay = learner.algorithm._replay
    loss, _ = learner.algorithm.loss(replay, replay.sample(32))
    bias = learner.algorithm.critics._critics[0].layers[-1].bias
    assert 1.0 < abs(float(torch.autograd.grad(loss, bias)[0])) <= 1e4


def test_the_temperature_grows_while_the_entropy_is_below_its_target(learn):
    for actions in (ACTIONS, FORCES):
        for grows in (True, False):
            learner, batch = learn(actions, target_entropy=100.0 if grows else -100.0,
                                   target_entropy_share=float(grows))
            found = [learner.learn(batch)['losses/temperature'] for _ in range(4)]
            assert found == sorted(found, reverse=not grows), (actions, grows)
            assert len(set(found)) == 4
    learner, batch = learn(FORCES, automatic_temperature=False, temperature=0.2)
    found = [learner.learn(batch)['losses/temperature'] for _ in range(3)]
    assert found == [pytest.approx(0.2)] * 3, 'not automatic: it stays'


def test_cloning_never_raises_the_temperature(learn):
    for cost in (0.0, 2.0):
        learner, batch = learn(
            MOTORS, target_entropy_share=1.0, cloning_cost=cost, temperature=0.2)
        learner.algorithm.demonstrate(batch)
        for _ in range(3):
            learner.learn(batch)
        temperature = float(learner.algorithm.log_temperature.exp())
        assert temperature == pytest.approx(0.2) if cost else temperature > 0.2


def test_an_interrupt_ends_an_update_between_two_optimizer_steps(learn):
    learner, batch = learn(ACTIONS, replay_ratio=100.0)
    answers = iter([False, False, True])
    learner.algorithm.is_interrupted = lambda: next(answers)
    assert learner.learn(batch)['losses/loss'] != 0.0
    assert learner.algorithm.optimizer.steps == 2


def test_the_target_follows_the_critics_by_a_share(learn, monkeypatch):
    learner, batch = learn(ACTIONS, target_smoothing=0.1)
    sac = learner.algorithm
    step, before, after = sac.optimizer.step, [], []

    def spy(*args):
        before.append([each.clone() for each in sac.target.parameters()])
        result = step(*args)
        after.append([each.detach().clone() for each in sac.critics.parameters()])
        return result

    monkeypatch.setattr(sac.optimizer, 'step', spy)
    learner.learn(batch)
    assert len(before) > 1
    before.append(list(sac.target.parameters()))
    for old, critics, new in zip(before[:-1], after, before[1:], strict=True):
        for a, b, c in zip(old, critics, new, strict=True):
            torch.testing.assert_close(c, 0.9 * a + 0.1 * b)


@pytest.mark.parametrize('actions', [ACTIONS, MOTORS, FORCES], ids=str)
def test_of_many_critics_some_are_the_target_and_their_mean_is_the_policys(
        learn, actions, monkeypatch):
    learner, batch = learn(actions, critics=5, target_critics=2, critic_layer_norm=True)
    sac, used = learner.algorithm, []
    assert sum(isinstance(each, torch.nn.LayerNorm) for each in sac.critics.modules()) == 10
    sac._replay.add(batch, batch.rewards)
    calls = {id(sac.target): sac.target.forward, id(sac.critics): sac.critics.forward}
    for name, each in (('target', sac.target), ('critics', sac.critics)):
        monkeypatch.setattr(each, 'forward', lambda *args, name=name, each=each, **given: (
            used.append((name, given.get('chosen'))), calls[id(each)](*args, **given))[1])
    for _ in range(20):
        loss, _ = sac.loss(sac._replay, sac._replay.sample(8))
    loss.backward()
    assert all(each.grad.abs().sum() > 0 for each in sac.critics._critics.parameters())
    chosen = [each for name, each in used if name == 'target']
    assert {len(set(each)) for each in chosen} == {2}
    assert {number for each in chosen for number in each} == set(range(5))
    # For actions that are not a Box one call has the values of all.
    assert [each for name, each in used if name == 'critics'] == [None] * (
        40 if actions is FORCES else 20)


def test_a_share_of_each_step_is_of_demonstrations(learn, monkeypatch):
    learner, batch = learn(FORCES, demonstration_share=0.25)
    sac, shown = learner.algorithm, dataclasses.replace(
        batch, observations=batch.observations + 100.0)
    sac.demonstrate(shown)
    sac._replay.add(batch, batch.rewards)
    seen, values = [], sac._q_values
    monkeypatch.setattr(sac, '_q_values', lambda inputs, *others: (
        seen.append((inputs[:, 0] > 50.0).float().mean()), values(inputs, *others))[1])
    learner.learn(batch)
    assert seen
    assert set(map(float, seen)) == {0.25}


def test_demonstrations_are_in_the_statistics_and_learned_before_anybody_acts(learn):
    learner, batch = learn(MOTORS, normalize_observations=True)
    sac, shown = learner.algorithm, dataclasses.replace(
        batch, observations=batch.observations + 100.0)
    sac.demonstrate(shown)
    steps = int(batch.valid.sum())
    assert sac.policy.normalizer.count == steps
    torch.testing.assert_close(
        sac.policy.normalizer.mean.float(), shown.observations[:-1][shown.valid].mean(0))
    learner.warm_up()
    assert sac.optimizer.steps == int(steps * SMALL['replay_ratio'] / SMALL['replay_batch'])
    made = sac.optimizer.steps
    learner.warm_up()
    assert sac.optimizer.steps == made


def test_a_resumed_run_has_the_temperature_that_it_learned_or_the_one_that_is_given(learn):
    for automatic, expected in ((True, 1.0), (False, 0.05)):
        state = learn(MOTORS, automatic_temperature=automatic)[0].state()
        other, _ = learn(MOTORS, automatic_temperature=automatic, temperature=0.05)
        other.load_state(copy.deepcopy(state))
        assert float(other.algorithm.log_temperature.exp()) == pytest.approx(expected)


def test_a_run_that_goes_on_makes_the_first_steps_that_were_left(learn):
    def resumed(state, *, given=True, arrays=None):
        """Return how many steps are made before anybody acts."""
        other, batch = learn(MOTORS, replay_ratio=8.0)
        if given:
            other.algorithm.demonstrate(batch)
        other.load_state(copy.deepcopy(state))
        if arrays:
            other.algorithm.load_replay_arrays(arrays)
        before = other.algorithm.optimizer.steps
        other.warm_up()
        return other.algorithm.optimizer.steps - before

    learner, batch = learn(MOTORS, replay_ratio=8.0)
    sac, due = learner.algorithm, int(int(batch.valid.sum()) * 8.0 / SMALL['replay_batch'])
    sac.demonstrate(batch)
    before = copy.deepcopy(learner.state())
    assert resumed(before) == due > 3
    sac.is_interrupted = lambda: sac.optimizer.steps == 3
    learner.warm_up()
    within = copy.deepcopy(learner.state())
    assert resumed(within) == due - 3
    assert resumed(within, given=False, arrays=sac.replay_arrays()) == due - 3
    assert resumed(within, given=False) == 0, 'there is nothing to learn from'
    sac.is_interrupted = lambda: False
    learner.warm_up()
    assert resumed(learner.state()) == 0
    # An older checkpoint says nothing of it.
    del before['algorithm']['first_steps']
    assert resumed(before) == 0


def test_several_learners_learn_the_demonstrations_in_step(learn, pair):
    def work(group):
        group.broadcast = lambda data: group._both(data)[0]
        learner, batch = learn(MOTORS, group=group, replay_ratio=8.0)
        learner.algorithm.demonstrate(batch)
        learner.broadcast_state()
        learner.warm_up()
        return learner.algorithm.optimizer.steps, [
            each.tolist() for each in learner.weights().values()]

    (steps, weights), second = pair(work, work)
    assert steps > 1
    assert second == (steps, weights)


def test_several_learners_draw_from_takeovers_once_all_have_enough(learn, pair):
    def work(group):
        group.broadcast = lambda data: group._both(data)[0]
        learner, batch = learn(MOTORS, group=group, replay_batch=8)
        steps = []
        # At first only the robot of learner 0 is taken over.
        for is_taken_over in (group.rank == 0, group.rank == 0, True):
            found = learner.learn(dataclasses.replace(
                batch, intervened=torch.full_like(batch.terminated, is_taken_over)))
            steps.append((learner.algorithm._sample_size, found['losses/optimizer_steps']))
        return steps

    first, second = pair(work, work)
    assert first == second
    assert [size for size, _ in first] == [8, 8, 4]


def test_the_policy_also_clones_demonstrated_actions(learn):
    learner, batch = learn(MOTORS, demonstration_share=0.25, cloning_cost=2.0)
    sac = learner.algorithm
    sac.demonstrate(batch)
    sac._replay.add(batch, batch.rewards)
    sample, shown = sac._replay.sample(24), sac._demonstrated.sample(8)
    sac._demonstrated.sample = lambda count: shown

    def loss(cost):
        sac.algorithm_config = dataclasses.replace(sac.algorithm_config, cloning_cost=cost)
        return sac.loss(sac._replay, sample)[0]

    observations, _, actions, *_ = sac._steps(sac._demonstrated, shown)
    likelihood = [sum(torch.log_softmax(each, -1)[part] for each, part in zip(
        learner.policy(x).parameters.split([3, 2]), action, strict=True))
        for x, action in zip(observations, actions.long(), strict=True)]
    added = loss(2.0) - loss(0.0)
    torch.testing.assert_close(added, -2.0 * sum(likelihood) / 8)


def test_the_steps_of_a_person_are_demonstrations_once_they_fill_a_batch(learn, monkeypatch):
    learner, batch = learn(FORCES, demonstration_share=0.25, replay_batch=8)
    sac, persons = learner.algorithm, torch.zeros_like(batch.terminated)
    persons[2:5, 1] = True
    batch = dataclasses.replace(
        batch, intervened=persons, observations=batch.observations + 100.0 * torch.cat(
            [persons, persons[-1:]])[..., None])
    valid = int((persons & batch.valid).sum())
    assert learner.learn(batch)['losses/demonstrated_steps'] == valid
    seen, values = [], sac._q_values
    monkeypatch.setattr(sac, '_q_values', lambda inputs, *others: (
        seen.append((inputs[-2:, 0] > 50.0).all()), values(inputs, *others))[1])
    while sac._demonstrated.steps < 8:
        seen.clear()
        learner.learn(batch)
    assert seen
    assert all(seen)


def shown_by(sac):
    """Return the first number of each demonstrated observation: whose it is."""
    replay = sac._demonstrated
    return sorted(replay.observations[:, :-1, 0][replay.valid].round().tolist())


def test_a_resumed_replay_has_what_persons_did_and_the_demonstrations_given_now(learn):
    # Of twelve columns nine are given.
    def make():
        return learn(FORCES, replay_batch=8, replay_size=96, replay_ratio=0.2)

    def marked(number, **changed):
        observations = torch.full_like(batch.observations, number)
        return dataclasses.replace(batch, observations=observations, **changed)

    def resumed(arrays, *given):
        learner, _ = make()
        for number in given:
            learner.algorithm.demonstrate(marked(number))
        learner.algorithm.load_replay_arrays(copy.deepcopy(arrays))
        learner.learn(batch)
        return learner.algorithm

    learner, batch = make()
    sac, persons = learner.algorithm, torch.zeros_like(batch.terminated)
    nothing = copy.deepcopy(sac.replay_arrays())
    persons[:, 1] = True
    files, own = int(batch.valid.sum()), int((persons & batch.valid).sum())
    assert shown_by(resumed(nothing, 1.0)) == [1.0] * files
    sac.demonstrate(marked(1.0))
    learner.learn(marked(2.0, intervened=persons))
    saved, both = copy.deepcopy(sac.replay_arrays()), [1.0] * files + [2.0] * own
    assert shown_by(resumed(saved)) == both, 'none is given'
    again = resumed(saved, 1.0)
    assert shown_by(again) == both, 'none is there twice'
    for each in ('observations', 'weights', 'given', 'next'):
        name = f'demonstrated_{each}'
        np.testing.assert_array_equal(again.replay_arrays()[name], saved[name])
    again = resumed(saved, 3.0)
    assert shown_by(again) == [2.0] * own + [3.0] * files
    assert shown_by(resumed(again.replay_arrays(), 1.0)) == both
    # Where not all find room, a person's last steps do.
    for number in range(10, 18):
        learner.learn(marked(float(number), intervened=persons))
    again = resumed(sac.replay_arrays(), 3.0)
    assert shown_by(again) == [3.0] * files + [
        float(number) for number in (15, 16, 17) for _ in range(own)]
    assert shown_by(resumed(again.replay_arrays(), 1.0)) == [1.0] * files + [
        float(number) for number in (15, 16, 17) for _ in range(own)]
    # An older one does not say which were given.
    del saved['demonstrated_given']
    assert shown_by(resumed(saved)) == both
    saved['demonstrated_given'] = np.zeros(7, np.bool_)
    with pytest.raises(ValueError, match='^demonstrated_given: '):
        resumed(saved)


@pytest.fixture
def look(config, random_unroll):
    """Return a function that makes a learner of images and numbers, and a batch."""
    def make(precision='float32', **options):
        settings = config('sac', precision=precision)
        learner = Learner(settings, SEEN, ACTIONS, algorithm_config=make_algorithm_config(
            settings, {**SMALL, **options}))
        rng = np.random.default_rng(0)
        rows = rng.integers(0, 256, (9, 3, *SEEN.shape), np.uint8)
        SEEN.split(rows)[1][...] = rng.normal(size=(9, 3, 2))
        unroll = random_unroll(0)
        return learner, make_batch([dataclasses.replace(
            unroll, arrays={**unroll.arrays, 'observations': rows})], learner.schema)
    return make


@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
def test_the_loss_of_the_critics_alone_teaches_the_convolutions(look, precision):
    learner, batch = look(precision, critics=3)
    sac, policy = learner.algorithm, learner.policy
    sac._replay.add(batch, batch.rewards)
    with torch.no_grad():  # with a head near 0 the policy's layers learn nothing yet
        policy.policy_head.weight.normal_()
    _, parts = sac.loss(sac._replay, sac._replay.sample(8))
    convolutions = [each for layer in policy.policy_torso if isinstance(layer, nn.Conv2d)
                    for each in layer.parameters()]
    shared = set(map(id, convolutions))
    own = [each for each in policy.parameters() if id(each) not in shared]
    for name, taught, others in (
            ('critic', [*convolutions, *sac.critics.parameters()], own),
            ('policy', own, [*convolutions, *sac.critics.parameters()])):
        loss = parts[f'losses/{name}_loss']
        found = torch.autograd.grad(loss, [*taught, *others], retain_graph=True, allow_unused=True)
        assert all(each.abs().sum() > 0 for each in found[:len(taught)]), name
        assert all(each is None for each in found[len(taught):]), name
    # One set of convolutions, in the policy, which actors get.
    assert not any(isinstance(each, nn.Conv2d) for each in sac.critics.modules())


def test_observation_and_bootstrap_observation_are_shifted_at_random(look, monkeypatch):
    shifted = []
    monkeypatch.setattr(networks, 'random_shift', lambda images, *where: (
        shifted.append((images.shape, *where)), torch.zeros_like(images))[1])
    for share, expected in ((0.1, [((8, 36, 40, 3), 0.1, 1)] * 2), (0.0, [])):
        shifted.clear()
        learner, batch = look(random_shift=share)
        sac, images = learner.algorithm, []
        sac._convolutions.register_forward_pre_hook(lambda _, inputs, to=images: to.append(inputs))
        sac._replay.add(batch, batch.rewards)
        sac.loss(sac._replay, sac._replay.sample(8))
        assert shifted == expected
        assert [bool(each.any()) for each, in images] == [not expected] * 2
        learner.policy(batch.observations)
        assert shifted == expected, 'who acts sees images where they are'


def test_a_resumed_learner_shifts_as_it_would_have(look, same):
    one, batch = look()
    one.learn(batch)
    other, _ = look()
    other.load_state(copy.deepcopy(one.state()))
    other.algorithm.load_replay_arrays(copy.deepcopy(one.algorithm.replay_arrays()))
    assert one.learn(batch) == other.learn(batch)
    assert same(one.state(), other.state())
