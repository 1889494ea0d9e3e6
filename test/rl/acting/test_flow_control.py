"""Credit and the choice of a learner; faults/test_flow_model.py has the faults."""

from vdl_ros.rl.acting.flow_control import Credit, LearnerChoice, make_learner_id
from vdl_ros.rl.learning.flow_stats import FlowStats


def test_credit_is_spent_and_restored():
    credit = Credit(2)
    assert not credit.available, 'before the first policy'
    credit.on_policy('learner', None)
    assert [credit.spend(), credit.spend()] == [0, 1]
    assert not credit.available
    credit.on_policy('learner', 1)
    assert (credit.outstanding, credit.available) == (1, True)
    credit.on_policy('learner', 0)  # an older policy takes nothing back
    assert credit.outstanding == 1
    credit.on_policy('learner', 10**6)  # more than was sent
    assert [credit.spend(), credit.spend()] == [2, 3]
    assert not credit.available
    credit.on_policy('new', None)
    assert credit.outstanding == 0, 'what was sent to an earlier learner does not count'
    assert [credit.spend(), credit.spend()] == [4, 5]
    for outstanding in (1, 0, 0):
        credit.write_off()
        assert credit.outstanding == outstanding, 'one less, but at most what is pending'


class Waiting:
    """An actor that has spent its credit of two, and the policies of a learner."""

    def __init__(self):
        self.now, self.version = 0.0, 0
        self.credit = Credit(2, batch_size=2, timeout=10.0, clock=lambda: self.now)
        self.policy(0.0, updates=1)
        self.credit.spend()
        self.credit.spend()

    def policy(self, seconds, updates, used=None, num_actors=3):
        self.now += seconds
        self.version += updates
        self.credit.on_policy('learner', used, self.version, num_actors)
        return self.credit.is_lost


def test_lost_trajectories_are_given_up_although_other_actors_keep_the_learner_busy():
    actor = Waiting()
    given_up = [second for second in range(30) if actor.policy(1.0, updates=20)]
    assert given_up[0] == 10
    actor.credit.write_off()
    assert actor.credit.available
    assert not actor.policy(1.0, updates=20), 'the next one has its own time'


def test_trajectories_that_wait_in_the_learner_are_not_given_up():
    # 50 actors and a slow learner: it is this one's turn after up to 50 updates.
    actor = Waiting()
    assert not any(actor.policy(10.0, updates=1, num_actors=50) for _ in range(50))
    # Credit for one of two: the other one waits from now on.
    assert not actor.policy(10.0, updates=1, num_actors=50, used=1)
    assert not any(actor.policy(10.0, updates=1, num_actors=50) for _ in range(50))


def test_a_trajectory_is_given_up_if_no_policy_comes():
    actor = Waiting()
    actor.now += 9.9
    assert not actor.credit.is_lost
    actor.now += 0.2
    assert actor.credit.is_lost
    actor.credit.wait_again()
    assert not actor.credit.is_lost


def test_an_actor_with_nothing_pending_has_lost_nothing():
    actor = Waiting()
    actor.policy(0.0, updates=1, used=2)
    for _ in range(50):
        assert not actor.policy(10.0, updates=100)
    actor.credit.spend()
    assert not actor.policy(0.1, updates=100), 'it waits since it was sent'
    # The next unroll takes longer than the learner may be silent.
    actor.policy(0.0, updates=1, used=3)
    actor.now += 60.0
    actor.credit.spend()
    assert not actor.credit.is_lost, 'the learner had nothing to learn from'


def test_a_new_learner_counts_no_losses_of_an_earlier_one():
    flow_stats = FlowStats()
    assert flow_stats.lag_mean == 0.0
    assert flow_stats.arrive('a', 1, 41) == (True, 0)
    assert flow_stats.arrive('a', 1, 44) == (True, 2)
    assert (flow_stats.received, flow_stats.lost, flow_stats.duplicates) == (2, 2, 0)
    assert flow_stats.credits() == {1: ('a', 43)}, 'the two that are lost count as used'
    flow_stats.use(1, 3)
    assert flow_stats.credits() == {1: ('a', 44)}
    flow_stats.use(1, 1)
    assert (flow_stats.lag_max, flow_stats.lag_mean) == (3, 2.0)


def test_late_repeated_and_impossible_trajectories_are_not_new():
    flow_stats = FlowStats()
    for sequence, expected in ((0, (True, 0)), (2, (True, 1)), (1, (False, 0)), (2, (False, 0)),
                               (2**40, (False, 0)), (3, (True, 0))):
        assert flow_stats.arrive('a', 1, sequence) == expected, sequence
    assert (flow_stats.received, flow_stats.lost, flow_stats.duplicates) == (3, 1, 2)
    assert flow_stats.rejected == 1, 'a jump that no credit allows'


def test_processes_with_one_name_have_separate_credit_and_count_as_restarts():
    flow_stats = FlowStats()
    flow_stats.arrive('a', 1, 7)
    assert flow_stats.arrive('a', 2, 0) == (True, 0)
    flow_stats.use(1, 0)  # of the dead process: no credit for the new one
    assert flow_stats.credits() == {1: ('a', 8), 2: ('a', 0)}
    assert flow_stats.arrive('a', 1, 8) == (True, 0), 'what the dead one sent may come late'
    assert (flow_stats.lost, flow_stats.duplicates, flow_stats.actor_restarts) == (0, 0, 1)
    flow_stats.arrive('b', 1000, 0)
    flow_stats.arrive('a', 3, 0)
    assert (flow_stats.actor_restarts, flow_stats.actors) == (2, 2)


def test_credit_is_due_once_something_is_lost_and_fits_a_message():
    flow_stats = FlowStats()
    for sequence, due in ((0, False), (1, False), (3, True)):
        flow_stats.arrive('a', 1, sequence)
        assert flow_stats.credit_due == due
    flow_stats.credit_due = False
    flow_stats.arrive('stranger', 2, 2**64 - 1)
    assert flow_stats.credit_due, 'they were sent to an earlier learner, or are lost'
    flow_stats.use(2, -(2**63))
    assert flow_stats.credits() == {1: ('a', 1), 2: ('stranger', 2**64 - 1)}
    assert flow_stats.lag_max == 0


def test_a_silent_actor_is_absent_after_a_minute_and_forgotten_after_ten():
    now = [0.0]
    flow_stats = FlowStats(clock=lambda: now[0])
    for start_id, name in ((1, 'used'), (2, 'waiting')):
        flow_stats.arrive(name, start_id, 0)
    flow_stats.use(1, 0)
    for now[0], actors, credits in ((59.0, 2, {1, 2}), (61.0, 1, {1, 2}), (599.0, 1, {1, 2}),
                                    (601.0, 1, {2}), (10_000.0, 1, {2})):
        assert flow_stats.actors == actors
        assert flow_stats.credits().keys() == credits, 'what waits is not forgotten'
    # However late it is used, its actor gets the credit.
    flow_stats.use(2, 0)
    assert flow_stats.credits() == {2: ('waiting', 1)}
    # An actor that was only slow continues.
    assert flow_stats.arrive('used', 1, 7) == (True, 0)
    assert flow_stats.actors == 2
    assert (flow_stats.lost, flow_stats.actor_restarts) == (0, 0)


def test_of_many_actors_a_policy_has_the_credits_that_changed_and_all_once_a_second():
    now = [0.0]
    flow_stats = FlowStats(clock=lambda: now[0])
    for number in range(100):
        flow_stats.arrive(f'a{number}', number, 0)
    assert len(flow_stats.credits_to_send()) == 100
    now[0] = 0.9
    assert flow_stats.credits_to_send() == {}
    flow_stats.use(7, 0)
    flow_stats.arrive('new', 100, 0)
    assert flow_stats.credits_to_send() == {7: ('a7', 1), 100: ('new', 0)}
    assert flow_stats.credits_to_send() == {}
    now[0] = 1.0
    assert flow_stats.credits_to_send() == flow_stats.credits()
    few = FlowStats()
    few.arrive('one', 1, 0)
    assert few.credits_to_send() == few.credits_to_send() == {1: ('one', 0)}


def test_a_short_list_of_credits_does_not_shorten_how_long_an_actor_waits():
    """The list of all actors comes once a second; between two of them others are longer used."""
    now = [0.0]
    credit = Credit(1, timeout=10.0, clock=lambda: now[0])
    credit.on_policy('one', 0, 0, num_actors=100)
    credit.spend()
    now[0] = 20.0
    credit.on_policy('one', None, 50, num_actors=2)
    assert not credit.is_lost
    credit.on_policy('one', None, 250, num_actors=2)
    assert credit.is_lost


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
    first, unseen, second, another = map(make_learner_id, 'aaab')
    assert actor.takes(first)
    assert actor.takes(second), 'although the graph still shows the first'
    assert not actor.takes(another)
    assert [actor.choice.is_over(each) for each in (first, unseen, second, another)] == [
        True, True, False, False]
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
