"""The service of central inference: its thread, and what happens when that fails."""

import queue
from concurrent.futures import wait

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from central_sides import Asking, Learner

from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.ros.training.inference_service import InferenceService
from vdl_ros.ros.training.messages import to_observation

ENV_ID = 'vdl/Counter-v0'
PATIENCE_S = 60.0


def observation(learner, learner_id='learner', **changes):
    """Return the first message of an actor, with some arrays changed."""
    request = Asking(learner, ENV_ID).request()
    return to_observation(dict(request.arrays) | changes, stamp=Time(), step=0,
                          learner_id=learner_id, actor_id='a', start_id=1)


def service_of(learner, publish=print, warn=print):
    return InferenceService(learner.central, learner.steps, learner.flow_stats, 'learner',
                            publish=publish, warn=warn)


def test_an_error_of_its_thread_reaches_the_training_thread():
    learner = Learner(ENV_ID)

    def fail(action):
        raise RuntimeError('publish failed')

    service = service_of(learner, fail)
    with pytest.raises(queue.Empty):
        service.get(0.0)
    service.start()
    service.put(observation(learner), 0.0)
    wait([service._service], PATIENCE_S)
    with pytest.raises(RuntimeError, match='publish failed'):
        service.get(0.1)
    service.stop()


def test_an_observation_of_another_length_is_refused_and_not_kept():
    learner, warnings = Learner(ENV_ID), []
    service = service_of(learner, warn=warnings.append)
    for changes, reason in (
            ({'observations': np.zeros((3, 10**5), np.float32)},
             'observations: 1200000 bytes are not'),
            ({'extra': np.zeros(10**5)}, "unknown: ['extra']")):
        service.put(observation(learner, **changes), 0.0)
        service.put(observation(learner, learner_id='other'), 0.0)
        kept, _ = service._messages.get(0.0)
        assert reason in kept
        assert len(kept) < 300
        assert not len(service._messages), 'that of another learner is not kept'
        service._answer([(kept, 0.0)])
        assert warnings[-1] == kept
    assert (learner.flow_stats.rejected, len(warnings)) == (2, 2)


def test_answers_wait_while_too_many_bytes_of_unrolls_do():
    learner, answered = Learner(ENV_ID), queue.SimpleQueue()
    service = service_of(learner, answered.put)
    unroll = Unroll({'rewards': np.zeros((1, 10))}, 'a', 1, 0, 0)
    service._unrolls.put(unroll)
    service._count_bytes(unroll, 1)
    service.put(observation(learner), 0.0)
    service._messages.max_bytes = 79
    service.start()
    try:
        with pytest.raises(queue.Empty):
            answered.get(timeout=0.2)
        assert service.get(0.0) is unroll
        assert answered.get(timeout=PATIENCE_S).start_id == 1
    finally:
        service.stop()
