"""Central inference: the learner chooses actions for the observations of many actors in one batch.

The learner assembles the unrolls from these observations, so each crosses the network once.
Credit limits actors as in ``flow_control.py``: an actor with ``max_in_flight`` unrolls that are
not learned from yet gets its next actions when one of them is; with synchronous actors, when the
weights learned from it are loaded.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.data.unroll import OPTIONAL, Arrays, Unroll, UnrollError, UnrollSchema, add_extras
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.policy.policy import Policy, load_weights

# Sessions kept; beyond it, the one that was silent longest is dropped.
_MAX_ACTORS = 1024


@dataclass(frozen=True)
class Request:
    """One observation that waits for its actions.

    ``start_id`` is a random number of this start of the actor; ``step`` is repeated if the answer
    is lost; ``arrays`` passed :meth:`StepSchema.check`; ``age_s`` are seconds from step to
    arrival.
    """

    actor_id: str
    start_id: int
    step: int
    arrays: Mapping[str, NDArray[Any]]
    age_s: float = 0.0
    num_bytes: int = 0


@dataclass(frozen=True)
class Answer:
    """The actions for one observation, int64 [B] or [B, A], or float32 [B, A]."""

    request: Request
    actions: NDArray[Any]
    policy_version: int


@dataclass
class _Session:
    """The unroll that one actor is filling; ``t`` is its next step."""

    request: Request
    arrays: Arrays
    state: Tensor
    exploration: Callable[[int], float]
    step: int
    sequence: int
    version: int = 0
    num_bytes: int = 0
    t: int = 0
    answer: Answer | None = None

    @property
    def num_envs(self) -> int:
        return int(self.arrays['rewards'].shape[1])


class CentralInference:
    """Chooses actions for many actors and assembles their unrolls.

    Args:
        max_in_flight: unrolls of one actor that may wait to be learned from.
        timer: timer of the thread that calls :meth:`serve`.
        exploration: from an actor's name to its schedule, see :func:`exploration_schedule`.
        synchronous: whether actors may act only with the newest weights: credit then
            counts from the next :meth:`load`.
        max_bytes: of all unrolls that are being filled; beyond it, those of the actors that
            were silent longest are dropped.
    """

    def __init__(
        self, policy: Policy, unroll_schema: UnrollSchema, step_schema: StepSchema,
        flow_stats: FlowStats, max_in_flight: int, timer: ThreadTimer | None = None,
        exploration: Callable[[str], Callable[[int], float]] = lambda actor_id: lambda steps: 0.0,
        synchronous: bool = False, max_bytes: int | None = None,
    ) -> None:
        self._timer = timer or ThreadTimer()
        self._policy = policy.eval()
        self._unroll_schema, self._step_schema = unroll_schema, step_schema
        self._flow_stats, self._max_in_flight = flow_stats, max_in_flight
        self._exploration, self._synchronous = exploration, synchronous
        self._max_bytes = max_bytes
        self._version = self._agent_steps = 0
        # By start_id, if synchronous: unrolls that the current weights are learned from.
        self._used: dict[int, int] = {}
        self._lock = threading.Lock()
        # By start_id, the one that was silent longest in front; and those that want actions.
        self._sessions: dict[int, _Session] = {}
        self._waiting: dict[int, _Session] = {}

    def load(self, arrays: Mapping[str, NDArray[Any]], version: int, agent_steps: int = 0) -> None:
        """Use these weights from now on; call it in the thread that writes ``flow_stats``."""
        with self._lock:
            load_weights(self._policy, arrays)
            self._version, self._agent_steps = version, agent_steps
            if self._synchronous:
                self._used = {key: record.used
                              for key, record in self._flow_stats.actor_records.items()}

    def serve(
        self, requests: Sequence[Request], reject: Callable[[Request, UnrollError], None],
    ) -> tuple[list[Answer], list[Unroll]]:
        """Add observations; return the answers of all actors with credit, and complete unrolls.

        Call it regularly, also without requests, so that actors that got credit are answered.
        ``reject`` is called with each request that does not continue its actor's last one.
        """
        answers: list[Answer] = []
        unrolls: list[Unroll] = []
        with self._timer('decode'):
            for request in requests:
                try:
                    self._add(request, answers, unrolls)
                except UnrollError as error:
                    reject(request, error)
        ready = [session for session in self._waiting.values() if self._has_credit(session)]
        if ready:
            with self._timer('infer'):
                answers += self._infer(ready)
        return answers, unrolls

    def _add(self, request: Request, answers: list[Answer], unrolls: list[Unroll]) -> None:
        session = self._sessions.get(request.start_id)
        if session is not None:
            self._sessions[request.start_id] = self._sessions.pop(request.start_id)
        if session is None or request.step > session.step:
            self._start_session(request)
        elif request.step == session.step - 1 and session.answer is not None:
            answers.append(session.answer)  # the first one was lost
        elif request.step == session.step and request.start_id not in self._waiting:
            self._continue_session(session, request, unrolls)

    def _has_credit(self, session: _Session) -> bool:
        start_id = session.request.start_id
        if self._synchronous:
            used = self._used.get(start_id, 0)
        else:
            record = self._flow_stats.actor_records.get(start_id)
            used = record.used if record is not None else 0
        return session.sequence - used < self._max_in_flight

    def _start_session(self, request: Request) -> None:
        start_id, num_envs = request.start_id, len(request.arrays['rewards'])
        arrays = self._unroll_schema.empty(num_envs)
        self._step_schema.decode(request.arrays, None, arrays['observations'][0])
        arrays['is_reset'][0] = request.arrays['is_reset']
        before = self._sessions.pop(start_id, None)
        # A session that was dropped goes on after the unrolls that are counted.
        record = self._flow_stats.actor_records.get(start_id)
        sequence = before.sequence if before else record.expected if record else 0
        self._sessions[start_id] = self._waiting[start_id] = _Session(
            request, arrays, self._policy.initial_state(num_envs),
            self._exploration(request.actor_id), request.step, sequence)
        while len(self._sessions) > 1 and self._too_many():
            silent = next(iter(self._sessions))
            del self._sessions[silent]
            self._waiting.pop(silent, None)

    def _too_many(self) -> bool:
        return len(self._sessions) > _MAX_ACTORS or (self._max_bytes is not None and sum(
            self._unroll_schema.num_bytes(session.num_envs)
            for session in self._sessions.values()) > self._max_bytes)

    def _continue_session(
        self, session: _Session, request: Request, unrolls: list[Unroll],
    ) -> None:
        arrays, t = session.arrays, session.t
        if len(request.arrays['rewards']) != session.num_envs:
            raise UnrollError(f'rewards: {len(request.arrays["rewards"])} environments are not '
                              f'the {session.num_envs} of the step before')
        observations = arrays['observations']
        self._step_schema.decode(request.arrays, observations[t - 1], observations[t])
        arrays['is_reset'][t] = request.arrays['is_reset']
        for name in ('rewards', 'terminated', 'truncated'):
            arrays[name][t - 1] = request.arrays[name]
        add_extras(arrays, {
            name: request.arrays[name] for name in OPTIONAL if name in request.arrays}, t - 1)
        session.state = self._policy.append_last_action(session.state, *(
            torch.from_numpy(arrays[name][t - 1]) for name in ('actions', 'rewards')))
        session.request = request
        session.num_bytes += request.num_bytes
        if t == self._unroll_schema.unroll_length:
            unrolls.append(Unroll(
                arrays, request.actor_id, request.start_id, session.sequence, session.version,
                request.age_s, session.num_bytes))
            session.arrays = self._unroll_schema.empty(session.num_envs)
            session.arrays['observations'][0] = observations[t]
            session.arrays['is_reset'][0] = arrays['is_reset'][t]
            session.t, session.num_bytes = 0, 0
            session.sequence += 1
        self._waiting[request.start_id] = session

    @torch.inference_mode()
    def _infer(self, sessions: Sequence[_Session]) -> list[Answer]:
        policy = self._policy
        # [None]: T = 1.
        observations, is_reset = (
            torch.from_numpy(np.concatenate(
                [session.arrays[name][session.t] for session in sessions]))[None]
            for name in ('observations', 'is_reset'))
        before = torch.cat([session.state for session in sessions])
        with self._lock:
            version = self._version
            policy.exploration = torch.cat([
                torch.full((session.num_envs,), session.exploration(self._agent_steps))
                for session in sessions])
            parameters, _, state = policy(observations, is_reset, before)
        sampled = policy.distribution.sample(parameters[0])
        log_probs = policy.distribution.log_prob(parameters[0], sampled).numpy()
        actions = sampled.numpy()
        env_actions = policy.distribution.to_environment(actions)
        answers, start = [], 0
        for session in sessions:
            stop = start + session.num_envs
            session.arrays['actions'][session.t] = actions[start:stop]
            session.arrays['behaviour_log_probs'][session.t] = log_probs[start:stop]
            if session.t == 0:
                session.version = version
                if policy.state_size:
                    session.arrays['state'][...] = session.state.numpy()
            session.state = state[start:stop]
            session.answer = Answer(session.request, env_actions[start:stop].copy(), version)
            answers.append(session.answer)
            session.t += 1
            session.step += 1
            del self._waiting[session.request.start_id]
            start = stop
        return answers
