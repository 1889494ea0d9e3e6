"""The sentence that names a training's bottleneck, by time shares, settings and machine."""

from vdl_ros.rl.learning.reporting import Bottleneck, Circumstances, sentence

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
     'the learner is the bottleneck (80% updates of the network); try num_actors:=1'),
    (actor(0.6), BUSY_LEARNER, {'cores': 2, 'num_actors': 2},
     'the learner is the bottleneck (80% updates of the network); no core is free: try '
     'num_actors:=1'),
    (actor(0.4), learner(0.0, decode=0.6, learn=0.4), {'cores': 2, 'num_actors': 2},
     '(60% decoding trajectories); no core is free: try a GPU, or num_learners:=2 with another'),
    (actor(0.7), learner(0.0), {'cores': 2, 'num_actors': 2, 'num_learners': 2},
     'no core is free: try a GPU, or num_learners:=3 with another host'),
    (actor(0.5), BUSY_LEARNER, {'cores': 8, 'num_actors': 4, 'on_gpu': True},
     'try num_learners:=2 with another GPU'),
    (BUSY_ACTOR, learner(0.7), {'cores': 4, 'num_actors': 2},
     'the learner waits 70% of its time: the actors are the bottleneck (70% the environments); '
     'try num_actors:=3'),
    (BUSY_ACTOR, learner(0.7), {'cores': 2, 'num_actors': 2},
     'no core is free: actors on another host help (docs/tutorials/several_hosts.md)'),
    (actor(0.1, step=0.3, infer=0.6), learner(0.4), {'cores': 4, 'num_actors': 1},
     "the actors are the bottleneck (60% the network's actions)"),
    (actor(0.0), learner(0.8), {'cores': 2, 'num_actors': 1, 'realtime': True},
     "the learner waits 80% of its time: the environments' own clock sets the pace; try "
     'num_actors:=2'),
    (actor(0.5), learner(0.45), {'cores': 4},
     'actors wait 50% of their time and the learner 45%: they wait for each other; try '
     'max_in_flight:=8'),
    (actor(0.5), learner(0.6), {'cores': 4, 'synchronous': True},
     'synchronous:=false lets them work at the same time'),
    (BUSY_ACTOR, BUSY_LEARNER, {'cores': 2}, 'actors and learner are both busy'),
]


def test_sentence_names_bottleneck_and_advice():
    for acting, training, now, expected in CASES:
        found = sentence({'acting': acting, 'training': training}, Circumstances(**now))
        assert expected in found
        assert '\n' not in found
    for shares in ({}, {'training': BUSY_LEARNER}, {'acting': BUSY_ACTOR},
                   {'training': {}, 'acting': {}}):
        assert sentence(shares, Circumstances(cores=2)) == '', f'too little is known: {shares}'


def test_busy_inference_at_the_learner_is_named():
    shares, now = {'acting': actor(0.7), 'training': learner(0.6)}, Circumstances(cores=4)
    busy = {**shares, 'inference': {'infer': 0.8, 'wait': 0.2}}
    assert 'try inference:=actor' in sentence(busy, now)
    assert 'inference' not in sentence(shares, now)


def test_recent_rows_and_all_rows_are_told_apart_and_threads_are_not_tried_twice():
    now = [0.0]
    found = Bottleneck({'num_actors': 2, 'learner_threads': 0, 'env_id': 'CartPole-v1'},
                       on_gpu=False, clock=lambda: now[0])
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
