"""The sentence that names a training's bottleneck, by time shares, settings and machine."""

from vdl_ros.rl.learning.bottleneck import Bottleneck, Circumstances, CoresOfOthers, sentence

BUSY_LEARNER = {'learn': 0.8, 'decode': 0.1, 'wait': 0.1}
BUSY_ACTOR = {'step': 0.7, 'infer': 0.25, 'wait': 0.05}


def actor(wait, **phases):
    return {'wait': wait, **(phases or {'step': 0.75 * (1 - wait), 'infer': 0.25 * (1 - wait)})}


def learner(wait, **phases):
    return {'wait': wait, **(phases or {'learn': 1 - wait})}


CASES = [
    (actor(0.6), BUSY_LEARNER, {'cores': 4, 'num_actors': 2},
     'actors wait 60% of their time: the learner is the bottleneck (80% updates of the network); '
     'try learner_threads:=2'),
    (actor(0.6), BUSY_LEARNER, {'cores': 4, 'num_actors': 2, 'threads_are_tried': True},
     'the learner is the bottleneck (80% updates of the network); try batch_size:=8'),
    (actor(0.95), learner(0.0), {'cores': 2, 'algorithm': 'sac', 'replay_ratio': 128.0},
     'try replay_batch:=256, or replay_ratio:=32 instead of 128, which samples each step less '
     'often'),
    (actor(0.6), learner(0.0), {'cores': 2, 'algorithm': 'dqn', 'replay_ratio': 1.0},
     ' or replay_ratio:=0.5 instead of 1, '),
    (actor(0.6), BUSY_LEARNER, {'cores': 2, 'num_actors': 2, 'algorithm': 'ppo'},
     'try ppo_epochs:=5, which learns less from each step'),
    (actor(0.4), learner(0.0, decode=0.6, learn=0.4),
     {'cores': 2, 'num_actors': 2, 'algorithm': 'ppo'},
     '(60% decoding trajectories); try a GPU, or num_learners:=2 with another host'),
    (actor(0.9), learner(0.0, publish=0.6, learn=0.4), {'cores': 8, 'batch_size': 2},
     '(60% publishing); try publish_every:=8 max_in_flight:=16'),
    (actor(0.5), BUSY_LEARNER, {'cores': 8, 'num_actors': 4, 'on_gpu': True},
     'try num_learners:=2 with another GPU'),
    (BUSY_ACTOR, learner(0.7), {'cores': 4, 'num_actors': 2},
     'the learner waits 70% of its time: the actors are the bottleneck (70% the environments); '
     'try num_actors:=3'),
    (BUSY_ACTOR, learner(0.7), {'cores': 2, 'num_actors': 2, 'algorithm': 'ppo'},
     'no core is free: actors on another host help (docs/tutorials/several_hosts.md)'),
    (actor(0.1, step=0.3, infer=0.6), learner(0.4), {'cores': 4, 'num_actors': 1},
     "the actors are the bottleneck (60% the network's actions)"),
    (actor(0.0), learner(0.8), {'cores': 2, 'num_actors': 1, 'realtime': True},
     "the learner waits 80% of its time: the environments' own clock sets the pace; try "
     'num_actors:=4'),
    (BUSY_ACTOR, learner(0.7), {'cores': 16, 'num_actors': 2}, 'try num_actors:=7'),
    (actor(0.0), learner(0.8), {'cores': 8, 'realtime': True, 'robot': True},
     "of its time: the robot's own clock sets the pace"),
    (actor(0.5), learner(0.45), {'cores': 4},
     'actors wait 50% of their time and the learner 45%: they wait for each other; try '
     'max_in_flight:=8'),
    (actor(0.5), learner(0.6), {'cores': 4, 'synchronous': True},
     'synchronous:=false lets them work at the same time'),
    (BUSY_ACTOR, BUSY_LEARNER, {'cores': 2, 'max_in_flight': 2},
     'actors and learner are both busy: the processor is the bottleneck; try batch_size:=8 '
     'max_in_flight:=8'),
    (BUSY_ACTOR, BUSY_LEARNER, {'cores': 2, 'num_envs': 16}, '; more cores, or actors.launch'),
    (BUSY_ACTOR, BUSY_LEARNER, {'cores': 2, 'algorithm': 'ppo'}, '; more cores, or actors.launch'),
]


def test_sentence_names_bottleneck_and_advice():
    for acting, training, now, expected in CASES:
        found = sentence({'acting': acting, 'training': training}, Circumstances(**now))
        assert expected in found
        assert '\n' not in found
    for shares in ({}, {'training': BUSY_LEARNER}, {'acting': BUSY_ACTOR},
                   {'training': {}, 'acting': {}}):
        assert sentence(shares, Circumstances(cores=2)) == '', f'too little is known: {shares}'


def test_other_programs_that_hold_the_cores_are_named():
    def found(cores, **now):
        return sentence({'acting': BUSY_ACTOR, 'training': learner(0.7),
                         'machine': {'others': 1.3}}, Circumstances(cores, num_actors=2, **now))

    assert found(2).endswith('; other programs hold 1.3 of 2 cores; end them')
    assert found(8).endswith('; try num_actors:=6')
    assert found(2, robot=True).endswith('clock sets the pace'), 'a robot does not wait for cores'


def test_what_other_programs_hold_is_what_this_training_does_not():
    now, busy, own = [0.0], [100.0], {1: 10.0, 2: 20.0}
    others = CoresOfOthers(lambda: now[0], lambda: busy[0], lambda: dict(own))
    assert others() == 0
    now[0], busy[0] = 10.0, 118.0
    own.update({1: 13.0, 3: 2.0})
    assert others() == 1.3
    now[0], busy[0] = 11.0, 200.0
    assert others() == 1.3, 'too soon'
    now[0], busy[0] = 30.0, 119.0
    own.update({1: 20.0})
    assert others() == 0


def test_busy_inference_at_the_learner_is_named():
    shares, now = {'acting': actor(0.7), 'training': learner(0.6)}, Circumstances(cores=4)
    busy = {**shares, 'inference': {'infer': 0.8, 'wait': 0.2}}
    assert 'try inference:=actor' in sentence(busy, now)
    assert 'inference' not in sentence(shares, now)


def test_recent_rows_and_all_rows_are_told_apart_and_threads_are_not_tried_twice():
    now = [0.0]
    found = Bottleneck({'num_actors': 2, 'learner_threads': 0, 'env_id': 'CartPole-v1'},
                       on_gpu=False, clock=lambda: now[0], others=lambda: 0.0)
    assert (found.recent, found.overall(), found.learner_threads) == ('', '', 1)
    found.set_learner_threads(2, tried=True)
    slow_learner = {'time/training/learn': 0.9, 'time/training/wait': 0.1, 'charts/SPS': 5.0}
    found.add(slow_learner, 30.0)
    assert found.recent == '', 'no actor has reported yet'
    # Rows without reports of actors in between count for the learner only.
    found.add(slow_learner | {'time/acting/wait': 0.6, 'time/acting/step': 0.4}, 30.0)
    found.add(slow_learner, 30.0)
    assert 'actors wait 60%' in found.recent
    assert 'learner_threads' not in found.recent
    now[0] += 60.0
    found.add({'time/training/learn': 0.2, 'time/training/wait': 0.8,
               'time/acting/wait': 0.0, 'time/acting/step': 1.0}, 1.0)
    assert 'the learner waits 80%' in found.recent
    assert 'the learner is the bottleneck (89% updates' in found.overall()
