"""An actor stays with its learner while that one is active, however many publish policies."""

from vdl_ros.rl.acting.flow_control import LearnerChoice, make_learner_id


class Actor:
    """The choice of an actor, with a clock of its own."""

    def __init__(self):
        self.now = 100.0
        self.choice = LearnerChoice(10.0, lambda: self.now)

    def takes(self, learner_id, num_publishers=2, seconds=0.0):
        self.now += seconds
        allowed = self.choice.allows(learner_id, num_publishers)
        if allowed:
            self.choice.stay_with(learner_id)
        return allowed


def test_of_two_active_learners_the_first_is_taken_always():
    actor = Actor()
    taken = [(actor.takes('first', seconds=3.0), actor.takes('second', seconds=3.0))
             for _ in range(100)]
    assert taken == [(True, False)] * 100
    for _ in range(10):
        actor.now += 9.0
        actor.choice.heard()
        assert not actor.takes('second'), 'the first answers without publishing policies'


def test_another_learner_is_taken_once_the_first_is_silent_or_the_other_is_alone():
    actor = Actor()
    assert actor.takes('first')
    assert not actor.takes('second', seconds=9.9)
    assert actor.takes('second', seconds=0.2)
    assert not actor.takes('first'), 'when it comes back'
    assert actor.takes('restarted', 1)
    assert actor.takes('restarted again', 0), 'discovery may lag behind'


def test_a_learner_that_its_launch_restarted_is_taken_at_once():
    actor = Actor()
    first, second, another = make_learner_id('a'), make_learner_id('a'), make_learner_id('b')
    assert actor.takes(first)
    assert actor.takes(second), 'although the graph still shows the first'
    assert not actor.takes(another)
    assert [actor.choice.is_over(each) for each in (first, second, another)] == [
        True, False, False]
    assert actor.takes(another, num_publishers=1)
    assert not actor.choice.is_over(second)
    assert actor.takes(second, num_publishers=1), 'its launch was left, and may be taken again'
    actor = Actor()
    assert actor.takes(make_learner_id(''))
    assert not actor.takes(make_learner_id('')), 'without a launch it is no restart'


def test_with_a_launch_only_the_last_learner_of_it_is_taken():
    choice = LearnerChoice(0.0, launch_id='a')
    for learner_id in (make_learner_id('a'), make_learner_id('a')):
        assert not choice.allows(make_learner_id('b'), 1)
        assert choice.allows(learner_id, 2)
        choice.stay_with(learner_id)


def test_a_learner_whose_policy_is_refused_keeps_no_other_out_and_is_reported_once():
    choice = LearnerChoice(10.0)
    for _ in range(3):
        assert choice.allows('stranger', 2)
        assert choice.allows('learner', 2)
    assert [choice.is_new(each) for each in ('b', 'b', 'c', 'c', 'b')] == [
        True, False, True, False, True]
