"""PPO with a penalty on the divergence: how its weight, beta, adapts."""

import pytest
import torch

from vdl_ros.rl.algorithm_config import PpoConfig
from vdl_ros.rl.algorithms.kl_penalty import KlPenalty
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema


@pytest.mark.parametrize(('share', 'beta'), [
    (1.51, 2.0), (1.49, 1.0), (1 / 1.49, 1.0), (1 / 1.51, 0.5)])
def test_beta_adapts_to_the_divergence(batch, linear, algorithm, config, share, beta):
    """Twice where it is over 1.5 times the target, half where under the target / 1.5."""
    def update(**options):
        learner = algorithm(linear(), config('ppo', learning_rate=0.01), ppo_epochs=1,
                            ppo_minibatches=4, **options)
        torch.manual_seed(0)
        return learner, learner.update(batch)

    kl = update(ppo_form='kl')[1]['losses/last_kl']
    assert kl > 1e-5
    learner, metrics = update(ppo_form='kl', ppo_kl_target=kl / share)
    assert metrics['losses/last_kl'] == kl
    assert learner.penalty.beta == metrics['losses/kl_beta'] == beta
    assert update(ppo_form='clip', ppo_kl_target=kl / share)[0].penalty.beta == 1.0


def test_beta_has_bounds(batch, linear, algorithm, config):
    learner = algorithm(linear(), config('ppo', learning_rate=0.0), ppo_form='kl', ppo_epochs=1,
                        ppo_minibatches=2)
    betas = [learner.update(batch)['losses/kl_beta'] for _ in range(15)]
    assert betas[:3] == [0.5, 0.25, 0.125]
    assert betas[-2:] == [1e-4, 1e-4]
    learner = algorithm(linear(), config('ppo', learning_rate=0.01), ppo_form='kl',
                        ppo_epochs=1, ppo_minibatches=2, ppo_kl_target=1e-6)
    betas = [learner.update(batch)['losses/kl_beta'] for _ in range(8)]
    assert betas[:3] == [2.0, 4.0, 8.0]
    assert betas[-2:] == [100.0, 100.0]


def test_a_hinge_changes_the_learning_rate_where_beta_cannot(batch, linear, algorithm, config):
    """WALL-E: beta by 1.5 from 1/35 to 35, the learning rate too beyond 30 or 1/30."""
    penalty = KlPenalty(PpoConfig(ppo_form='hinge', ppo_kl_target=0.01))
    penalty.adapt(0.019)
    penalty.adapt(0.0051)
    assert penalty.beta == 1.0
    penalty.adapt(0.021)
    assert penalty.beta == 1.5
    rates = []
    for _ in range(16):
        penalty.adapt(0.021)
        rates.append(penalty.learning_rate_factor)
    assert penalty.beta == 35.0
    assert rates[6:9] == [1.0, pytest.approx(1 / 1.5), pytest.approx(1 / 2.25)]
    assert rates[-1] == 0.1
    for _ in range(40):
        penalty.adapt(0.004)
    assert (penalty.beta, penalty.learning_rate_factor) == (pytest.approx(1 / 35), 10.0)
    learner = algorithm(linear(), config('ppo', learning_rate=0.01), ppo_form='hinge',
                        ppo_epochs=1, ppo_minibatches=2, ppo_kl_target=1e-6)
    learner.penalty.beta = 34.0
    learner.update(batch)
    learner.optimizer.schedule(0)
    assert learner.optimizer.learning_rate == pytest.approx(0.01 / 1.5)
    other = algorithm(linear(), config('ppo', learning_rate=0.01), ppo_form='hinge')
    other.load_state(learner.state())
    other.optimizer.schedule(0)
    assert other.optimizer.learning_rate == pytest.approx(0.01 / 1.5)


@pytest.mark.parametrize('memory', [{'lstm_size': 3}, {'last_action_reward': True}], ids=str)
def test_one_step_does_not_change_beta(random_unroll, spaces, pair, real, config, memory):
    """A single column is a single minibatch: the divergence before its step is always 0."""
    def make(epochs=1):
        return real(config('ppo', **memory, learning_rate=0.01), ppo_form='kl',
                    ppo_epochs=epochs, ppo_minibatches=4, ppo_kl_target=0.5)

    def update(learner, columns, seed=0):
        size = learner.policy.state_size
        metrics = learner.update(make_batch(
            [random_unroll(seed, batch=columns, state_size=size)],
            UnrollSchema(*spaces, 8, 1, size)))
        assert learner.penalty.beta == metrics['losses/kl_beta']
        return metrics['losses/minibatches'], learner.penalty.beta

    learner = make()
    assert [update(learner, 1, seed) for seed in range(3)] == [(1, 1.0)] * 3
    assert update(learner, 2) == (2, 0.5)
    assert update(learner, 1) == (1, 0.5)
    assert update(make(epochs=2), 1) == (2, 0.5)
    members = [make(), make()]

    def learn(rank):
        def run(group):
            members[rank].group = members[rank].optimizer.group = group
            return [update(members[rank], columns) for columns in (1 + 2 * rank, 2 + rank)]
        return run

    # All make as many as the one with the fewest columns.
    assert pair(learn(0), learn(1)) == [[(1, 1.0), (2, 0.5)]] * 2
