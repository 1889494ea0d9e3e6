"""The thread that connects robots to the graph: one node, callbacks, and their common clock."""

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import IO, Protocol

import numpy as np
from builtin_interfaces.msg import Time
from msgspec.structs import replace
from numpy.typing import NDArray
from rclpy.duration import Duration
from rclpy.node import Node
from rosgraph_msgs.msg import Clock

from vdl_ros.common.consent import ROBOT_ENVIRONMENT
from vdl_ros.common.files import InUseError, lock_folder
from vdl_ros.robots.classifier import Classifier
from vdl_ros.robots.confirmation import Confirmation
from vdl_ros.robots.contract import Contract
from vdl_ros.robots.episode import Result
from vdl_ros.robots.session import Seen, Session
from vdl_ros.robots.task import Task
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import seconds, time_of
from vdl_ros.ros.process import call_back, make_executor, state_file
from vdl_ros.ros.robots.resetters import make_resetter
from vdl_ros.ros.robots.robot_topics import RobotInterfaces, RobotTopics

_CLOCK_TIMEOUT_S = 1.0  # a simulated clock that stands still for so long is lost, s
_OTHERS_S = 0.5  # time between two looks for other environments of the same robots, s
# Longest wait for the last actions to arrive, s; the robots' watchdogs stop them otherwise.
_ACK_S = 1.0
_WAIT_S = 0.05  # longest wait for callbacks, s
_PROCESS = uuid.uuid4().hex


class Agent(Protocol):
    """Who acts, if it may be gone although :meth:`RobotGraph.act` is called."""

    #: Whether it has acted since it was there; and whether what it gives is the neutral action.
    has_acted: bool
    rests: bool

    def problem(self, at_rest: Seen | None) -> str:
        """Return why nobody acts, or ''; it is asked again and again.

        ``at_reset`` is what is measured while the robot is reset, which nobody watches without it.
        """


class RobotGraph:
    """Robots with their sessions and tasks; all methods are for the agent's thread.

    Once ``ends`` is set the robots get the neutral action, and no other one any more.
    ``launch`` is of :class:`Confirmation`; '': this process is one.
    ``max_steps`` replaces ``episode_steps`` of the contract, unless it is 0. ``takeovers``,
    ``follows`` and ``classifier`` are of :class:`Session`. Without its ``agent`` nothing moves,
    and when one that has acted is gone, a person has to confirm that the robots may go on.
    """

    def __init__(
        self, contract: Contract, interfaces: RobotInterfaces, tasks: Sequence[Task],
        namespace: str, ends: threading.Event, launch: str = '', max_steps: int = 0, *,
        takeovers: bool = False, follows: bool = False, classifier: Classifier | None = None,
        agent: Agent | None = None,
    ) -> None:
        self._agent = agent
        self._contract = replace(contract, episode_steps=max_steps) if max_steps else contract
        # The name says which environment was first; all else that launch files remap in this
        # process, such as /clock in a namespace, is remapped here too.
        name = f'{ROBOT_ENVIRONMENT}{time.time_ns()}'
        self._node = Node(name, namespace=namespace,
                          cli_args=['--ros-args', '-r', f'__node:={name}'],
                          start_parameter_services=False)
        self._lock = threading.Condition()
        self._ticks = self._taken = 0
        self._simulated: float | None = None
        self._simulated_wall, self._due = time.monotonic(), -np.inf
        self._looked = -np.inf
        self._failure: BaseException | None = None
        self._ends, self._is_closed, self._is_over = ends, False, False
        # The locks of the robots that are this environment's, by topic.
        self._own: dict[str, IO[str]] = {}
        self._robots = [
            RobotTopics(self._node, interfaces, task, copy, self._lock, self._now, self._stamp)
            for copy, task in enumerate(tasks)]
        self._resetters = [
            make_resetter(contract, self._node, robot.full) for robot in self._robots]
        self._sessions = [
            Session(self._contract, task, resetter, robot.send, self._logger(copy),
                    name=self._node.get_fully_qualified_name(),
                    # Each target is a person's word.
                    confirmation=None if follows else self._confirmation(
                        robot.topic, launch or _PROCESS),
                    takeovers=takeovers, follows=follows, classifier=classifier)
            for copy, (task, resetter, robot) in enumerate(zip(
                tasks, self._resetters, self._robots, strict=True))]
        for robot, session in zip(self._robots, self._sessions, strict=True):
            robot.connect(session, follows=follows)
        self._clock_problem = ''
        self._clock = qos.sub(
            self._node, '/clock', self._on_clock) if contract.simulated_clock else None
        self._thread = threading.Thread(target=self._run, name='robot', daemon=True)
        self._thread.start()

    def restart(self, randoms: Sequence[np.random.Generator]) -> None:
        with self._lock:
            for session, random in zip(self._sessions, randoms, strict=True):
                session.heed_agent()
                session.seed(random)
                session.lose('the environment is reset')

    def act(self, actions: NDArray[np.float64]) -> None:
        """Send actions, float64 [B, parts], to the robots that run."""
        with self._lock:
            now = self._now()
            for session, action in zip(self._sessions, () if self._is_over else actions,
                                       strict=not self._is_over):
                session.act(action, now)
            # What comes of it is seen at a later tick.
            self._taken = self._ticks

    def results(self, timeout: float) -> list[Result | None] | None:
        """Wait for a new tick: return what the robots say, None without; raise its errors."""
        with self._lock:
            self._lock.wait_for(
                lambda: self._ticks > self._taken or self._failure is not None, timeout)
            if self._failure is not None:
                raise self._failure
            for session in self._sessions:
                session.heed_agent()
            if self._ticks == self._taken:
                return None
            self._taken = self._ticks
            return [session.take() for session in self._sessions]

    def action_lag(self, robot: int) -> float:
        """Return the time that the latest action took until the robot repeated it, s, or 0."""
        return self._robots[robot].action_lag

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._stop_all()
        self._thread.join()
        late, lost, ticks = (sum(getattr(each, name) for each in self._sessions)
                             for name in ('late', 'lost', 'ticks'))
        self._node.get_logger().info(
            f'{self._contract.env_id}: {late} of {ticks} actions were late, {lost} episodes lost')
        deadline = time.monotonic() + _ACK_S
        for robot in self._robots:
            robot.wait_for_acks(max(0.0, deadline - time.monotonic()))
        # The end of a trajectory that resets a robot too.
        for publisher in self._node.publishers:
            publisher.wait_for_all_acked(Duration(seconds=max(0.0, deadline - time.monotonic())))
        for resetter in self._resetters:
            if resetter is not None:
                resetter.close()
        self._node.destroy_node()
        for lock in self._own.values():
            lock.close()

    def _confirmation(self, topic: str, launch: str) -> Confirmation:
        # A simulation waits for nobody.
        if self._contract.simulated_clock:
            return Confirmation()
        return Confirmation(state_file(
            self._node, 'unconfirmed', self._node.resolve_topic_name(topic)), launch)

    def _run(self) -> None:
        """Run callbacks and ticks; an error stops the robots and is raised in the agent."""
        executor = make_executor()
        executor.add_node(self._node)
        try:
            while not self._is_closed:
                wait = _WAIT_S
                if not self._contract.simulated_clock:
                    wait = min(wait, self._due - time.monotonic())
                call_back(executor, wait)
                with self._lock:
                    if not self._is_closed:
                        self._look()
        except BaseException as error:
            with self._lock:
                self._failure = error
                self._stop_all()
                self._lock.notify_all()
        finally:
            end = time.monotonic() + _ACK_S
            while time.monotonic() < end and any(
                    each is not None and each.is_ending for each in self._resetters):
                call_back(executor, _WAIT_S)
            # An error that is kept keeps the executor, which would keep the publishers.
            executor.shutdown(0.0)

    def _look(self) -> None:
        if self._ends.is_set() and not self._is_over:
            # Not by the agent's thread, in which a policy may hang.
            self._stop_all()
        if self._is_over:
            return
        wall = time.monotonic()
        if wall - self._looked >= _OTHERS_S:
            self._looked = wall
            self._look_for_clocks()
            others = [self._earlier(*robot.shared) for robot in self._robots]
            for robot, session, other in zip(self._robots, self._sessions, others, strict=True):
                robot.look_for_stops()
                if other:
                    # Commands without a sender are not heard.
                    session.on_other(other, self._now(), is_seen=True,
                                     commands=not self._contract.actions.sender)
        now = self._now()
        # It moves one robot.
        problem = self._agent.problem(self._sessions[0].at_rest(now)) if self._agent else ''
        if problem and self._agent and self._agent.has_acted:
            self._agent.has_acted = False
            for session in self._sessions:
                session.consent.withdraw(problem)
        for session in self._sessions:
            session.look(now)
        # After the callbacks of all that has arrived, also with the message of the clock.
        if now > -np.inf and now >= self._due - 1e-6:
            # Not one tick after the other after a standstill.
            period = 1.0 / self._contract.rate
            self._due = max(self._due + period, now + 0.5 * period)
            for robot, session in zip(self._robots, self._sessions, strict=True):
                robot.look_at_images()
                session.tick(now, is_received=robot.is_received(),
                             problem=problem or self._clock_problem)
                robot.show(now)
            self._ticks += 1
            self._lock.notify_all()
        if self._clock is not None and wall - self._simulated_wall > _CLOCK_TIMEOUT_S:
            for robot, session in zip(self._robots, self._sessions, strict=True):
                if self._simulated is not None:
                    session.lose('/clock stands still')
                    continue
                # Without a clock there is no tick.
                session.report(f'no message on {self._clock.topic_name} yet')
                robot.show(now)

    def _look_for_clocks(self) -> None:
        if self._clock is not None:
            topic = self._clock.topic_name
            count = self._node.count_publishers(topic)
            self._clock_problem = '' if count < 2 else (
                f'{topic}: {count} publishers, whose times cannot be told apart: end one, or give '
                'each simulation a namespace or a domain')

    def _on_clock(self, message: Clock) -> None:
        now = seconds(message.clock)
        with self._lock:
            if self._is_closed:
                return
            if self._simulated is not None and now < self._simulated:
                self._due = -np.inf
                for session, robot in zip(self._sessions, self._robots, strict=True):
                    session.on_clock_set_back()
                    robot.forget_images()
            if now != self._simulated:
                self._simulated, self._simulated_wall = now, time.monotonic()

    def _stop_all(self) -> None:
        self._is_over = True
        for session in self._sessions:
            session.stop()

    def _earlier(self, commands: str, measured: str) -> str:
        """Return the environment that was first to act on a robot, '' if it is this one."""
        node = self._node
        for topic in map(node.resolve_topic_name, (commands, measured)):
            if topic not in self._own:
                # Faster than the discovery of DDS, for those of this host.
                path = state_file(node, 'robots', topic)
                try:
                    self._own[topic] = lock_folder(path.parent, f'{path.stem}.lock')
                except InUseError:
                    return f'{ROBOT_ENVIRONMENT}of this host'
        names = [each.node_name for each in (
            *node.get_publishers_info_by_topic(commands),
            *node.get_subscriptions_info_by_topic(measured))
            if each.node_name.startswith(ROBOT_ENVIRONMENT)]
        first = min(names, key=lambda name: name[len(ROBOT_ENVIRONMENT):].zfill(24), default='')
        return first if first and first != self._node.get_name() else ''

    def _now(self) -> float:
        """Return the time of the robots' clock, s."""
        if not self._contract.simulated_clock:
            return time.monotonic()
        return -np.inf if self._simulated is None else self._simulated

    def _stamp(self) -> Time:
        if not self._contract.simulated_clock:
            return self._node.get_clock().now().to_msg()
        return time_of(round((self._simulated or 0.0) * 1e9))

    def _logger(self, copy: int) -> Callable[[str], None]:
        name = self._robots[copy].robot

        def log(text: str) -> None:
            self._node.get_logger().info(f'{name} {text}')
        return log
