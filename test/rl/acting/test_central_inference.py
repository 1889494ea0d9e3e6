"""
Central inference gives the same unrolls as local inference.

In the counter environments actions have no effect, so both must be equal bit by bit.
"""

import dataclasses

import central_sides as sides
import numpy as np
import pytest

from vdl_ros.rl.acting import central_inference as module
from vdl_ros.rl.data.unroll import UnrollError
from vdl_ros.rl.policy.weights import weights

Asking, Learner, go_on, local_unrolls = (
    sides.Asking, sides.Learner, sides.go_on, sides.local_unrolls)
STEPS = sides.STEPS
ENVIRONMENTS = ['vdl/Counter-v0', 'vdl/PixelCounter-v0', 'vdl/MixedCounter-v0']


def assert_same_stream(learner, unrolls, expected):
    """Assert that both hold the same, but for what the policies chose."""
    assert len(unrolls) == len(expected)
    for unroll, wanted in zip(unrolls, expected, strict=True):
        for name in ('rewards', 'terminated', 'truncated', 'is_reset'):
            np.testing.assert_array_equal(unroll.arrays[name], wanted[name], err_msg=name)
        # Of one environment only.
        np.testing.assert_equal(unroll.arrays.get('success'), wanted.get('success'))
        shape, dtype = unroll.arrays['observations'].shape, unroll.arrays['observations'].dtype
        got, out = np.empty(shape, dtype), np.empty(shape, dtype)
        learner.schema.decode_into(unroll.arrays, got)
        learner.schema.decode_into(wanted, out)
        np.testing.assert_array_equal(got, out)


@pytest.mark.parametrize('env_id', ENVIRONMENTS)
def test_unrolls_equal_those_of_local_inference(env_id):
    learner = Learner(env_id)
    asking = Asking(learner, env_id)
    go_on(learner, asking, 20 * STEPS + 1)
    assert [unroll.sequence for unroll in learner.unrolls] == list(range(20))
    assert {unroll.num_bytes for unroll in learner.unrolls[1:]} == {7 * STEPS}
    assert_same_stream(learner, learner.unrolls, local_unrolls(env_id, 20))


@pytest.mark.parametrize('env_id', ENVIRONMENTS)
def test_lost_and_duplicate_messages_do_not_change_the_unrolls(env_id):
    learner = Learner(env_id)
    asking = Asking(learner, env_id)
    rng = np.random.default_rng(0)
    late = None
    while len(learner.unrolls) < 10:
        request = asking.request()
        if rng.random() < 0.3:
            continue  # the observation is lost; the actor sends it again
        answers = learner.serve(*[request] * int(rng.integers(1, 3)))
        if late is not None and rng.random() < 0.3:
            learner.serve(late)  # an old one that took its time
        late = request
        assert len({answer.actions.tobytes() for answer in answers}) == 1
        if rng.random() < 0.3:
            continue  # the actions are lost; the actor sends the observation again
        asking.take(answers[0])
    assert learner.refused == []
    assert_same_stream(learner, learner.unrolls[:10], local_unrolls(env_id, 10))


@pytest.mark.parametrize('env_id', ENVIRONMENTS)
def test_after_a_learner_restart_whole_stacks_are_sent(env_id):
    first = Learner(env_id)
    asking = Asking(first, env_id)
    go_on(first, asking, 2 * STEPS)
    second = Learner(env_id)
    if env_id != 'vdl/Counter-v0':
        assert second.serve(asking.request()) == []
        assert 'there is no previous observation to continue' in second.refused[0]
    asking.whole = True
    go_on(second, asking, 3 * STEPS + 1)
    assert_same_stream(second, second.unrolls, local_unrolls(env_id, 5)[2:])


def test_many_actors_in_one_batch_get_their_own_actions():
    learner = Learner('vdl/Counter-v0')
    asking = [Asking(learner, 'vdl/Counter-v0', seed=number, batch=number + 1,
                     start_id=number) for number in range(4)]
    sizes = []
    learner.policy.register_forward_pre_hook(
        lambda module, inputs: sizes.append(inputs[0].shape[1]))
    for _ in range(3 * STEPS + 1):
        answers = {answer.request.start_id: answer
                   for answer in learner.serve(*[each.request() for each in asking])}
        for each in asking:
            each.take(answers[each.start_id])
    assert set(sizes) == {1 + 2 + 3 + 4}
    for number in range(4):
        mine = [each for each in learner.unrolls if each.start_id == number]
        assert_same_stream(
            learner, mine, local_unrolls('vdl/Counter-v0', 3, seed=number, batch=number + 1))


def test_an_actor_without_credit_is_answered_once_an_unroll_is_used():
    learner = Learner('vdl/Counter-v0', max_policy_lag=2)
    asking = Asking(learner, 'vdl/Counter-v0')
    go_on(learner, asking, 2 * STEPS)
    assert learner.serve(asking.request()) == []
    assert len(learner.unrolls) == 2
    assert learner.serve(asking.request()) == [], 'asking again does not help'
    assert learner.serve() == []
    learner.use(learner.unrolls[0])
    answer, = learner.serve()  # without a new message
    asking.take(answer)
    go_on(learner, asking, STEPS - 1)
    assert learner.serve(asking.request()) == []
    assert len(learner.unrolls) == 3
    assert_same_stream(learner, learner.unrolls, local_unrolls('vdl/Counter-v0', 3))


def test_synchronous_credit_returns_when_the_learned_weights_are_loaded():
    learner = Learner('vdl/Counter-v0', max_policy_lag=1, more={'synchronous': True})
    asking, other = (Asking(learner, 'vdl/Counter-v0', start_id=each) for each in (1, 2))
    learner.central.load(dict(weights(learner.policy)), 1)
    for each in (asking, other):
        go_on(learner, each, STEPS)
        assert learner.serve(each.request()) == []
    learner.use(learner.unrolls[0])
    assert learner.serve() == [], 'the weights are still those of before the update'
    learner.central.load(dict(weights(learner.policy)), 2)
    answer, = learner.serve()
    assert (answer.request.start_id, answer.policy_version) == (1, 2)
    asking.take(answer)
    go_on(learner, asking, STEPS - 1)
    assert learner.serve(asking.request()) == []
    assert [unroll.policy_version for unroll in learner.unrolls] == [1, 1, 2]


def test_an_actor_restart_starts_a_new_unroll():
    learner = Learner('vdl/Counter-v0')
    go_on(learner, Asking(learner, 'vdl/Counter-v0'), STEPS + 3)
    go_on(learner, Asking(learner, 'vdl/Counter-v0', seed=8, start_id=2), 2 * STEPS + 1)
    mine = [unroll for unroll in learner.unrolls if unroll.start_id == 2]
    assert [unroll.sequence for unroll in mine] == [0, 1]
    assert_same_stream(learner, mine, local_unrolls('vdl/Counter-v0', 2, seed=8))


def test_a_changed_number_of_environments_is_rejected_and_other_actors_are_answered():
    learner = Learner('vdl/Counter-v0')
    asking, other = (Asking(learner, 'vdl/Counter-v0', start_id=each) for each in (1, 2))
    go_on(learner, asking, 2)
    arrays = {name: array[:2] for name, array in asking.actor.observe(whole=False).items()}
    answers = learner.serve(
        dataclasses.replace(asking.request(), arrays=arrays), other.request())
    assert [answer.request.start_id for answer in answers] == [2]
    assert learner.refused == ['rewards: 2 environments are not the 3 of the step before']
    go_on(learner, asking, STEPS)
    assert_same_stream(learner, learner.unrolls, local_unrolls('vdl/Counter-v0', 1))


def test_the_sessions_that_were_silent_longest_are_dropped_first(monkeypatch):
    monkeypatch.setattr(module, '_MOST_ACTORS', 3)
    learner = Learner('vdl/Counter-v0')
    asking = [Asking(learner, 'vdl/Counter-v0', start_id=each) for each in range(5)]
    go_on(learner, asking[0], 1)
    session = learner.central._sessions[0]
    for each in asking[1:]:
        go_on(learner, each, 1)
        go_on(learner, asking[0], 1)
    assert learner.central._sessions[0] is session
    assert set(learner.central._sessions) == {0, 3, 4}
    assert learner.central._waiting == {}


def test_an_actor_whose_session_was_dropped_goes_on_with_whole_stacks(monkeypatch):
    monkeypatch.setattr(module, '_MOST_ACTORS', 1)
    learner = Learner('vdl/PixelCounter-v0', max_policy_lag=2)
    asking, other = (Asking(learner, 'vdl/PixelCounter-v0', start_id=each) for each in (1, 2))
    go_on(learner, asking, 2 * STEPS)
    learner.use(learner.unrolls[0])
    go_on(learner, other, 1)
    assert learner.serve(asking.request()) == []
    assert 'there is no previous observation to continue' in learner.refused[0]
    asking.whole = True
    go_on(learner, asking, 2 * STEPS)
    assert learner.serve(asking.request()) == [], 'its credit is bounded as before'
    assert [each.sequence for each in learner.unrolls] == [0, 1, 2]
    first, _, *later = local_unrolls('vdl/PixelCounter-v0', 4)
    assert_same_stream(learner, learner.unrolls, [first, *later])


def test_reported_episodes_are_those_of_the_environment():
    learner = Learner('vdl/Counter-v0')
    asking = Asking(learner, 'vdl/Counter-v0', batch=1)
    finished = []
    for _ in range(60):
        answer, = learner.serve(asking.request())
        finished += asking.take(answer)
    assert len(finished) > 3
    for number, episode in enumerate(finished):
        assert episode.episode_return == episode.length * (episode.length + 1) / 2
        assert (episode.terminated, episode.truncated) == (number % 2 == 0, number % 2 == 1)


@pytest.mark.parametrize(('name', 'change', 'message'), [
    ('rewards', lambda a: a.astype(np.float64), 'rewards: dtype float64 is not float32'),
    ('rewards', lambda a: a * np.nan, 'rewards: not all finite'),
    ('terminated', lambda a: a[:1], r'terminated: shape \(1,\) is not \(3,\)'),
    ('frames', lambda a: a[:, :4], r'frames: shape \(3, 4, 8\) is not \(3, 8, 8\)'),
    ('whole_index', lambda a: a + 1, 'whole_index: 1 to 3 is not within 0 to 2'),
    ('whole_index', lambda a: a - 1, 'whole_index: -1 to 1 is not within 0 to 2'),
    ('whole_index', lambda a: a[:2], 'whole_stacks: shape'),
])
def test_an_error_names_the_array_of_an_invalid_step(name, change, message):
    learner = Learner('vdl/PixelCounter-v0')
    arrays = Asking(learner, 'vdl/PixelCounter-v0').actor.observe(whole=True)
    assert learner.steps.check(arrays) == 3
    with pytest.raises(UnrollError, match=message):
        learner.steps.check(arrays | {name: change(arrays[name])})


def test_an_image_and_numbers_are_sent_as_arrays_of_their_own():
    learner = Learner('vdl/MixedCounter-v0')
    arrays = Asking(learner, 'vdl/MixedCounter-v0').actor.observe(whole=True)
    assert arrays['vectors'].shape == (3, 8)
    assert arrays['frames'].shape == (3, 36, 36)
    assert learner.steps.check(arrays) == 3
    for changed, message in ((arrays['vectors'] * np.nan, 'vectors: not all finite'),
                             (arrays['vectors'][:, :7], r'vectors: shape \(3, 7\) is not')):
        with pytest.raises(UnrollError, match=message):
            learner.steps.check(arrays | {'vectors': changed})
    whole = module.StepSchema(learner.schema.observation_space, 1)
    rows = np.zeros((3, *learner.schema.observation_space.shape), np.uint8)
    sent = whole.encode(rows, np.ones(3, np.bool_))
    assert {name: (each.shape, str(each.dtype)) for name, each in sent.items()} == {
        'images': ((3, 4, 36, 36), 'uint8'), 'vectors': ((3, 8), 'float32')}
    rows[:] = np.random.default_rng(0).integers(0, 256, rows.shape)
    out = np.zeros_like(rows)
    whole.decode(whole.encode(rows, np.ones(3, np.bool_)), None, out)
    assert np.array_equal(out, rows)


def test_each_frame_is_sent_once():
    learner = Learner('vdl/PixelCounter-v0')
    asking = Asking(learner, 'vdl/PixelCounter-v0')
    go_on(learner, asking, 3)
    arrays = asking.actor.observe(whole=False)
    assert 'observations' not in arrays
    assert arrays['frames'].shape == (3, 8, 8)
    assert len(arrays['whole_stacks']) == arrays['is_reset'].sum() == 0


def test_the_bytes_of_unrolls_that_are_being_filled_are_bounded():
    env_id = ENVIRONMENTS[0]
    size = Learner(env_id).schema.num_bytes(3)
    learner = Learner(env_id, more={'max_bytes': 2 * size})
    actors = [Asking(learner, env_id, start_id=number) for number in range(4)]
    for each in actors:
        go_on(learner, each, 1)
    assert list(learner.central._sessions) == [2, 3], 'those of the others were silent longer'
    large = Asking(learner, env_id, batch=9, start_id=9)
    go_on(learner, large, STEPS + 1)
    assert list(learner.central._sessions) == [9], 'the newest one stays'
    assert len(learner.unrolls) == 1
