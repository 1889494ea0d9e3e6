"""Settings that contradict each other are refused with both values; how exploration goes."""

import dataclasses

import pytest

from vdl_ros.common.settings import SettingError, build, select, settings_of
from vdl_ros.rl.settings import (
    ALGORITHM_SETTINGS,
    ALGORITHMS,
    DemonstrationsConfig,
    DqnConfig,
    ImpalaConfig,
    PpoConfig,
    ReplayConfig,
    SacConfig,
    TrainConfig,
    exploration_schedule,
    make_algorithm_config,
    verify,
)

DQN = TrainConfig(algorithm='dqn', unroll_length=20, total_steps=10_000)
# As large as they may be, each against the next.
AT_THE_EDGE = DqnConfig(
    n_step=20, replay_size=500, replay_start=500, replay_batch=500, exploration_start=1.0,
    exploration_end=1.0)


def refusal(train, algorithm_config, num_learners=1):
    """Return the refusal of settings, or ''."""
    try:
        verify(train, algorithm_config, num_learners)
    except SettingError as error:
        return str(error)
    return ''


def changed(train, own, of_train=(), of_own=()):
    return dataclasses.replace(train, **dict(of_train)), dataclasses.replace(own, **dict(of_own))


def test_defaults_are_allowed_and_an_algorithm_takes_its_own_settings_of_all():
    everything = {name: each.default for cls in (TrainConfig, *ALGORITHM_SETTINGS.values())
                  for name, each in settings_of(cls).items()}
    assert select(TrainConfig, everything) == TrainConfig()
    for algorithm in ALGORITHMS:
        train, own = TrainConfig(algorithm=algorithm), ALGORITHM_SETTINGS[algorithm]
        for cls in (TrainConfig, own):
            build(cls, {each.name: each.default for each in settings_of(cls).values()})
        assert refusal(train, own()) == ''
        assert make_algorithm_config(train, everything) == own()
    with pytest.raises(SettingError, match='^ppo_epochs: 0 is not allowed: a whole number from 1'):
        make_algorithm_config(TrainConfig(algorithm='ppo'), {'ppo_epochs': 0})


def test_several_learners_have_no_file_of_all_episodes():
    train = TrainConfig(record_episodes=True)
    assert refusal(train, make_algorithm_config(train, {})) == ''
    assert 'record_episodes: true is not allowed with num_learners 2' in refusal(
        train, make_algorithm_config(train, {}), 2)


def test_only_settings_of_replay_and_demonstrations_are_of_two_algorithms():
    names = [name for cls in (TrainConfig, *ALGORITHM_SETTINGS.values())
             for name in settings_of(cls)]
    assert {name for name in names if names.count(name) > 1} == settings_of(
        ReplayConfig, DemonstrationsConfig).keys()


def test_a_credit_smaller_than_what_an_answer_needs_is_refused():
    train, own = TrainConfig(batch_size=2, publish_every=3, max_in_flight=5), ImpalaConfig()
    found = refusal(train, own)
    assert found.startswith('max_in_flight: 5 is not allowed: ')
    assert ' = 2 * 3 = 6' in found
    assert refusal(*changed(train, own, {'max_in_flight': 6})) == ''
    train = TrainConfig(synchronous=True, batch_size=5, max_in_flight=4)
    assert refusal(train, ImpalaConfig()) == '', 'synchronous actors have that of a batch'
    assert train.credit == 5
    assert dataclasses.replace(train, synchronous=False).credit == 4


def test_what_does_not_fit_is_refused_with_both_values_and_what_just_fits_is_not():
    ppo, sac = TrainConfig(algorithm='ppo', batch_size=2, unroll_length=5), changed(
        DQN, SacConfig(), {'algorithm': 'sac'})
    synchronous = TrainConfig(synchronous=True, max_in_flight=1000), ImpalaConfig()
    dqn, epsilon = (DQN, AT_THE_EDGE), "with exploration 'epsilon': at most 1"
    one_step = {'ppo_epochs': 1, 'ppo_minibatches': 1}
    for good, of_train, of_own, message in (
            (synchronous, {'publish_every': 2}, {}, '2 is not allowed with synchronous true: 1'),
            ((ppo, PpoConfig(ppo_minibatches=10)), {}, {'ppo_minibatches': 11},
             '11 is not allowed: at most batch_size * unroll_length = 2 * 5 = 10'),
            *(((ppo, PpoConfig(ppo_form=form)), {}, one_step,
               f"1 is not allowed with ppo_form '{form}' and ppo_minibatches 1: one step")
              for form in ('kl', 'hinge')),
            (dqn, {}, {'n_step': 21}, '21 is not allowed: at most unroll_length, 20'),
            (dqn, {'unroll_length': 501}, {}, '501 is not allowed: at most replay_size, 500'),
            (dqn, {}, {'replay_start': 501}, '501 is not allowed: at most replay_size, 500'),
            (dqn, {'total_steps': 499}, {}, 'replay_start: 500 is not allowed: at most '
                                            'total_steps, 499'),
            (dqn, {}, {'exploration_start': 1.5}, f'1.5 is not allowed {epsilon}'),
            (dqn, {}, {'exploration_end': 2.0}, f'2 is not allowed {epsilon}'),
            (sac, {}, {'replay_start': 10_001},
             '10001 is not allowed: at most total_steps, 10000'),
            (sac, {'lstm_size': 8}, {}, "8 is not allowed with algorithm 'sac': 0"),
            (sac, {'last_action_reward': True}, {},
             "True is not allowed with algorithm 'sac': false")):
        assert refusal(*good) == '', good
        if not message.startswith('replay_start: '):
            message = f'{next(iter(of_train | of_own))}: {message}'
        found = refusal(*changed(*good, of_train, of_own))
        assert found.startswith(message), (message, found)
        assert '\n' not in found
    for good, of_train, of_own in (
            ((ppo, PpoConfig(ppo_form='clip')), {}, one_step),
            ((ppo, PpoConfig(ppo_form='kl')), {}, one_step | {'ppo_epochs': 2}),
            ((ppo, PpoConfig(ppo_form='kl')), {}, one_step | {'ppo_minibatches': 2}),
            (dqn, {'total_steps': 500}, {}), (dqn, {'unroll_length': 500}, {'n_step': 500}),
            (dqn, {}, {'exploration': 'boltzmann', 'exploration_start': 5.0}),
            (synchronous, {'synchronous': False, 'publish_every': 2}, {}),
            ((TrainConfig(), ImpalaConfig()), {'unroll_length': 10_000, 'total_steps': 1}, {})):
        assert refusal(*changed(*good, of_train, of_own)) == '', (of_train, of_own)


def test_each_learner_collects_before_it_learns():
    train = dataclasses.replace(DQN, total_steps=1001)
    assert refusal(train, AT_THE_EDGE, 2) == ''
    assert refusal(train, AT_THE_EDGE, 3) == (
        'replay_start: 500 is not allowed: at most total_steps / num_learners = 1001 / 3 = 333, '
        'or nothing would be learned')


NAMES = [f'actor-{i}' for i in range(200)]


def test_exploration_is_linear_from_start_to_end_and_then_constant():
    for exploration in ('epsilon', 'boltzmann'):
        own = DqnConfig(exploration=exploration, exploration_start=0.9, exploration_end=0.1,
                        exploration_steps=1000)
        explore = exploration_schedule(own, 'a')
        assert [explore(steps) for steps in (0, 250, 500, 1000, 10**9)] == pytest.approx(
            [0.9, 0.7, 0.5, 0.1, 0.1]), exploration
        assert exploration_schedule(own, 'a', frozen=True)(0) == pytest.approx(0.1)
    assert exploration_schedule(PpoConfig(), 'a')(0) == 0.0, 'no action values'


def test_actors_differ_by_their_names_if_there_is_a_spread():
    """Epsilon is raised to a power from 1 to 1 + spread; a temperature is divided by as much."""
    def explored(**own):
        return sorted(exploration_schedule(DqnConfig(**own), name)(0) for name in NAMES)

    assert len(set(explored())) == 1
    own = {'exploration_start': 0.5, 'exploration_end': 0.5, 'exploration_spread': 7.0}
    found = explored(**own)
    assert found == explored(**own)
    assert len(set(found)) == len(NAMES)
    assert 0.5**8 <= found[0] < 0.5**7.5
    assert 0.5**1.5 < found[-1] <= 0.5
    assert 0.5**5.5 < found[len(found) // 2] < 0.5**3.5
    found = explored(exploration='boltzmann', exploration_start=3.0, exploration_end=3.0,
                     exploration_spread=2.0)
    assert 1.0 <= found[0] < 1.05
    assert 2.7 < found[-1] <= 3.0
