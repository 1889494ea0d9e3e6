"""The service of central inference: its thread, and what happens when that fails."""

import queue

import pytest
from builtin_interfaces.msg import Time
from central_sides import Asking, Learner

from vdl_ros.ros.training.inference_service import InferenceService, to_observation

ENV_ID = 'vdl/Counter-v0'
PATIENCE_S = 60.0


def test_an_error_of_its_thread_reaches_the_training_thread():
    learner = Learner(ENV_ID)

    def fail(action):
        raise RuntimeError('publish failed')

    service = InferenceService(learner.central, learner.steps, learner.flow_stats, 'learner',
                               publish=fail, warn=print)
    with pytest.raises(queue.Empty):
        service.get(0.0)
    service.start()
    request = Asking(learner, ENV_ID).request()
    service.put(to_observation(
        dict(request.arrays), stamp=Time(), actor_id='a', start_id=1, step=0,
        learner_id='learner'), 0.0)
    service._thread.join(PATIENCE_S)
    with pytest.raises(RuntimeError, match='publish failed'):
        service.get(0.1)
    service.stop()
