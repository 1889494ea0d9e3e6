"""Central inference on topics: receives observations, publishes actions, collects unrolls."""

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from std_msgs.msg import Header

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.msg import Action, Observation
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.data.unroll import Unroll, UnrollError
from vdl_ros.rl.learning.central_inference import Answer, CentralInference, Request
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.ros.messages.tensors import TensorError, from_tensors, num_bytes, to_tensors
from vdl_ros.ros.training.messages import ActorMessages

_QUEUE = 1024  # observations that may wait; each actor has at most one
_CREDIT_PERIOD_S = 0.005  # period of checks for new credit, which comes without a message


class InferenceService:
    """Answers observation messages in its own thread and collects unrolls.

    The executor's thread calls ``put``, the training thread ``get`` and ``load``. ``central`` uses
    ``timer`` too; ``training_timer`` is of the thread that calls :meth:`get`.
    """

    def __init__(
        self, central: CentralInference, schema: StepSchema, flow_stats: FlowStats,
        learner_id: str, *, publish: Callable[[Action], None], warn: Callable[[str], None],
        timer: ThreadTimer | None = None, training_timer: ThreadTimer | None = None,
    ) -> None:
        self._timer, self._training_timer = timer or ThreadTimer(), training_timer or ThreadTimer()
        self._central, self._schema, self._flow_stats = central, schema, flow_stats
        self._learner_id, self._publish, self._warn = learner_id, publish, warn
        self._messages = ActorMessages[Observation](
            'observation', schema, learner_id, warn, _QUEUE)
        self._unrolls: queue.SimpleQueue[Unroll] = queue.SimpleQueue()
        self._unroll_bytes, self._unroll_lock = 0, threading.Lock()
        self._stamps: dict[int, Time] = {}
        self._over = threading.Event()
        self._thread = ThreadPoolExecutor(1, 'inference')
        self._service: Future[None] | None = None

    def start(self) -> None:
        self._service = self._thread.submit(self._serve)

    def stop(self) -> None:
        self._over.set()
        self._thread.shutdown()

    def load(self, arrays: Mapping[str, NDArray[Any]], version: int, agent_steps: int = 0) -> None:
        self._central.load(arrays, version, agent_steps)

    def put(self, message: Observation, age_s: float) -> None:
        """Enqueue a message; the actor sends one that is dropped again."""
        self._messages.put(message, age_s)

    @property
    def waiting(self) -> int:
        return self._unrolls.qsize()

    def get(self, timeout: float) -> Unroll:
        """Return the next unroll; raises queue.Empty, or what ended the service's thread."""
        if self._service is not None and self._service.done():
            self._service.result()
        with self._training_timer('wait'):
            unroll = self._unrolls.get(timeout=timeout)
        self._count_bytes(unroll, -1)
        self._flow_stats.arrive(unroll.actor_id, unroll.start_id, unroll.sequence)
        return unroll

    def _count_bytes(self, unroll: Unroll, sign: int) -> None:
        with self._unroll_lock:
            self._unroll_bytes += sign * sum(array.nbytes for array in unroll.arrays.values())

    def _serve(self) -> None:
        while not self._over.is_set():
            if self._unroll_bytes > self._messages.max_bytes:
                # The training thread is slower; meanwhile the messages wait, up to their bound.
                self._over.wait(_CREDIT_PERIOD_S)
                continue
            try:
                with self._timer('wait'):
                    first = self._messages.get(timeout=_CREDIT_PERIOD_S)
            except queue.Empty:
                self._answer([])
                continue
            # Messages that arrived meanwhile are answered in the same batch.
            batch = [first]
            while len(self._messages):
                batch.append(self._messages.get(0.0))
            self._answer(batch)

    def _answer(self, messages: list[tuple[Observation | str, float]]) -> None:
        with self._timer('decode'):
            decoded = [self._decode(message, age_s) for message, age_s in messages]
            requests = [request for request in decoded if request is not None]
        answers, unrolls = self._central.serve(
            requests, lambda request, error: self._reject(
                self._messages.refusal(request.actor_id, error)))
        for answer in answers:
            with self._timer('encode'):
                action = self._to_action(answer)
            with self._timer('publish'):
                self._flow_stats.bytes_out += num_bytes(action.tensors)
                self._publish(action)
        for unroll in unrolls:
            self._count_bytes(unroll, 1)
            self._unrolls.put(unroll)

    def _decode(self, message: Observation | str, age_s: float) -> Request | None:
        if isinstance(message, str):
            self._reject(message)
            return None
        try:
            arrays = from_tensors(message.tensors)
            self._schema.check(arrays)
        except (TensorError, UnrollError) as error:
            self._reject(self._messages.refusal(message.actor_id, error))
            return None
        self._stamps[message.start_id] = message.header.stamp
        return Request(message.actor_id, message.start_id, message.step, arrays, age_s,
                       num_bytes(message.tensors))

    def _reject(self, line: str) -> None:
        self._flow_stats.rejected += 1
        self._warn(line)

    def _to_action(self, answer: Answer) -> Action:
        request = answer.request
        return Action(
            header=Header(stamp=self._stamps.pop(request.start_id, Time())),
            actor_id=request.actor_id, start_id=request.start_id, step=request.step,
            learner_id=self._learner_id, policy_version=answer.policy_version,
            tensors=to_tensors({'actions': answer.actions}))
