"""
Central inference: answers the observations of many actors in one batch, and cuts the unrolls.

What an actor sees is all here already, so its unrolls need not travel: an observation crosses the
wire once. Credit works as between processes (``flow.py``): an actor that has ``max_policy_lag``
unrolls which are not learned from yet gets its answer when one is; if actors are synchronous, when
the weights that came of it are loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.rl.acting.actor import load_weights
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.data.unroll import Arrays, Unroll, UnrollError, UnrollSchema
from vdl_ros.rl.policy.policy import Policy

__all__ = ['Answer', 'CentralInference', 'Request']

# Actors' processes that are remembered; the one that was silent longest is forgotten first.
_MOST_ACTORS = 1024


@dataclass(frozen=True)
class Request:
    """
    One observation that waits for its actions.

    Attributes:
        actor_id: who asks.
        start_id: drawn anew at each start of the actor.
        step: 0, 1, 2, ...; the same again if the answer got lost.
        arrays: as :meth:`StepSchema.check` accepted them.
        age_s: seconds from the step to its arrival.
        num_bytes: its size on the wire.
    """

    actor_id: str
    start_id: int
    step: int
    arrays: Mapping[str, NDArray[Any]]
    age_s: float = 0.0
    num_bytes: int = 0


@dataclass(frozen=True)
class Answer:
    """
    The actions for one observation.

    Attributes:
        request: what is answered.
        actions: [B] int64 or [B, A] float32.
        policy_version: the version that chose them.
    """

    request: Request
    actions: NDArray[Any]
    policy_version: int


class _Session:
    """One actor's unroll under way."""

    def __init__(
        self, request: Request, arrays: Arrays, state: Tensor, explore: Callable[[int], float],
    ) -> None:
        self.request = request
        self.step = request.step
        self.sequence = 0
        self.version = 0
        self.num_bytes = 0
        self.t = 0
        self.arrays = arrays
        self.state = state
        self.explore = explore
        self.answer: Answer | None = None

    @property
    def num_envs(self) -> int:
        return int(self.arrays['rewards'].shape[1])

    @property
    def observation(self) -> NDArray[Any]:
        current: NDArray[Any] = self.arrays['observations'][self.t]
        return current

    @property
    def is_reset(self) -> NDArray[Any]:
        current: NDArray[Any] = self.arrays['is_reset'][self.t]
        return current


class CentralInference:
    """Sessions with actors, and the policy that answers them."""

    def __init__(
        self, policy: Policy, unroll_schema: UnrollSchema, step_schema: StepSchema,
        flow_stats: FlowStats, max_policy_lag: int, phases: ThreadTimer | None = None,
        exploration_schedule: Callable[[str], Callable[[int], float]] = (
            lambda actor_id: lambda steps: 0.0),
        synchronous: bool = False,
    ) -> None:
        """
        Answer with ``policy``, which must not be the one that learns.

        Args:
            policy: acts; its weights come by :meth:`load`.
            unroll_schema: what the unrolls must look like.
            step_schema: what the steps look like that they are made of.
            flow_stats: where the learner counts what it has used.
            max_policy_lag: unrolls of one actor that may wait to be learned from.
            phases: the clock of the thread that serves.
            exploration_schedule: returns how an actor explores, see ``exploration.py``.
            synchronous: whether nobody may act with other weights than the newest: credit then
                counts from the next :meth:`load`.
        """
        self._phases = phases or ThreadTimer()
        self._policy = policy.eval()
        self._unroll_schema, self._step_schema = unroll_schema, step_schema
        self._flow_stats, self._max_policy_lag = flow_stats, max_policy_lag
        self._exploration_schedule, self._synchronous = exploration_schedule, synchronous
        self._version = self._agent_steps = 0
        # By start_id, if synchronous: unrolls that the weights are learned from.
        self._used: dict[int, int] = {}
        self._lock = threading.Lock()
        self._sessions: dict[int, _Session] = {}
        self._waiting: dict[int, _Session] = {}

    def load(
        self, arrays: Mapping[str, NDArray[Any]], version: int, agent_steps: int = 0,
    ) -> None:
        """Answer with these weights from now on; for the thread that writes the flow_stats."""
        with self._lock:
            load_weights(self._policy, arrays)
            self._version, self._agent_steps = version, agent_steps
            if self._synchronous:
                self._used = {key: peer.used for key, peer in self._flow_stats.peers.items()}

    def serve(
        self, requests: Sequence[Request], refuse: Callable[[Request, UnrollError], None],
    ) -> tuple[list[Answer], list[Unroll]]:
        """
        Take in observations and answer all that may be answered now.

        Call it with nothing from time to time: credit that was given since is used then.

        Args:
            requests: in order of arrival.
            refuse: called with a request that does not continue what came before.

        Returns:
            Answers, and the unrolls that are complete now.
        """
        answers: list[Answer] = []
        unrolls: list[Unroll] = []
        with self._phases('decode'):
            for request in requests:
                try:
                    self._take_in(request, answers, unrolls)
                except UnrollError as error:
                    refuse(request, error)
        ready = [session for session in self._waiting.values() if self._may_act(session)]
        if ready:
            with self._phases('infer'):
                answers += self._act(ready)
        return answers, unrolls

    def _take_in(
        self, request: Request, answers: list[Answer], unrolls: list[Unroll],
    ) -> None:
        session = self._sessions.get(request.start_id)
        if session is None or request.step > session.step:
            self._begin(request)
        elif request.step == session.step - 1 and session.answer is not None:
            answers.append(session.answer)  # it got lost on its way
        elif request.step == session.step and request.start_id not in self._waiting:
            self._go_on(session, request, unrolls)

    def _may_act(self, session: _Session) -> bool:
        start_id = session.request.start_id
        if self._synchronous:
            used = self._used.get(start_id, 0)
        else:
            peer = self._flow_stats.peers.get(start_id)
            used = peer.used if peer is not None else 0
        return session.sequence - used < self._max_policy_lag

    def _begin(self, request: Request) -> None:
        arrays = self._unroll_schema.empty(len(request.arrays['rewards']))
        self._step_schema.decode(request.arrays, None, arrays['observations'][0])
        session = _Session(
            request, arrays, self._policy.initial_state(len(request.arrays['rewards'])),
            self._exploration_schedule(request.actor_id))
        arrays['is_reset'][0] = request.arrays['is_reset']
        before = self._sessions.pop(request.start_id, None)
        session.sequence = before.sequence if before is not None else 0
        self._sessions[request.start_id] = self._waiting[request.start_id] = session
        if len(self._sessions) > _MOST_ACTORS:
            oldest = next(iter(self._sessions))
            del self._sessions[oldest]
            self._waiting.pop(oldest, None)

    def _go_on(self, session: _Session, request: Request, unrolls: list[Unroll]) -> None:
        arrays, t = session.arrays, session.t
        if len(request.arrays['rewards']) != session.num_envs:
            raise UnrollError(f'rewards: {len(request.arrays["rewards"])} environments are not '
                              f'the {session.num_envs} of the step before')
        observations = arrays['observations']
        self._step_schema.decode(request.arrays, observations[t - 1], observations[t])
        arrays['is_reset'][t] = request.arrays['is_reset']
        for name in ('rewards', 'terminated', 'truncated'):
            arrays[name][t - 1] = request.arrays[name]
        session.state = self._policy.told(session.state, *(
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
    def _act(self, sessions: Sequence[_Session]) -> list[Answer]:
        policy = self._policy
        # A row of time of its own: T is 1.
        observations, is_reset = (
            torch.from_numpy(np.concatenate(arrays))[None] for arrays in (
                [session.observation for session in sessions],
                [session.is_reset for session in sessions]))
        before = torch.cat([session.state for session in sessions])
        with self._lock:
            version = self._version
            policy.exploration = torch.cat([
                torch.full((session.num_envs,), session.explore(self._agent_steps))
                for session in sessions])
            parameters, _, state = policy(observations, is_reset, before)
        drawn = policy.distribution.sample(parameters[0])
        log_probs = policy.distribution.log_prob(parameters[0], drawn).numpy()
        actions = drawn.numpy()
        told = policy.distribution.to_environment(actions)
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
            session.answer = Answer(session.request, told[start:stop].copy(), version)
            answers.append(session.answer)
            session.t += 1
            session.step += 1
            del self._waiting[session.request.start_id]
            start = stop
        return answers
