"""LifecycleNode: a node whose transitions the launch follows and asks for."""

from __future__ import annotations

import asyncio
from typing import Any

from launch.actions import OpaqueFunction
from launch.event_handler import EventHandler
from launch.launch_context import LaunchContext
from launch.logging import get_logger
from launch.some_substitutions_type import SomeSubstitutionsType

from ..events.lifecycle import ChangeState, StateTransition
from ..ros_adapters import get_ros_node
from .node import Node

# How often it is looked whether the service is there and has answered.
_POLL_SECONDS = 0.02


class LifecycleNode(Node):
    """
    Runs a lifecycle node.

    Its transitions become StateTransition events, and a ChangeState event for it becomes a call
    of its service.
    """

    def __init__(
        self, *, name: SomeSubstitutionsType, namespace: SomeSubstitutionsType, **kwargs: Any
    ) -> None:
        """Keep everything; the name and the namespace are needed to reach the node."""
        super().__init__(name=name, namespace=namespace, **kwargs)
        self._client: Any = None
        self._subscription: Any = None

    def execute(self, context: LaunchContext) -> None:
        """Get ready to follow the node, and start it."""
        if context.is_shutdown:
            # Nothing would be started, and nobody would let go of the node of the launch.
            return
        from lifecycle_msgs import msg, srv

        self.expand_names(context)
        node = get_ros_node(context)
        loop = context.asyncio_loop

        def on_transition(message: Any) -> None:
            # This is called in the thread that spins the node.
            event = StateTransition(action=self, msg=message)
            loop.call_soon_threadsafe(context.emit_event_sync, event)

        self._subscription = node.create_subscription(
            msg.TransitionEvent, f'{self.node_name}/transition_event', on_transition, 10
        )
        self._client = node.create_client(srv.ChangeState, f'{self.node_name}/change_state')
        context.register_event_handler(
            EventHandler(
                matcher=lambda event: isinstance(event, ChangeState),
                entities=OpaqueFunction(function=self._on_change_state),
            )
        )
        super().execute(context)

    def _on_change_state(self, context: LaunchContext) -> None:
        event = context.locals.event
        if event.lifecycle_node_matcher(self):
            context.add_completion_future(
                context.asyncio_loop.create_task(self._change_state(context, event))
            )

    async def _change_state(self, context: LaunchContext, event: ChangeState) -> None:
        from lifecycle_msgs.srv import ChangeState as ChangeStateService

        logger = get_logger('launch_ros.actions.lifecycle_node')
        while not self._client.service_is_ready():
            await asyncio.sleep(_POLL_SECONDS)
            if context.is_shutdown:
                logger.warning(
                    f"Abandoning wait for the '{self._client.srv_name}' service, due to shutdown."
                )
                return
        request = ChangeStateService.Request()
        request.transition.id = event.transition_id
        answer = self._client.call_async(request)
        while not answer.done():
            await asyncio.sleep(_POLL_SECONDS)
            if context.is_shutdown:
                # The node of the launch is gone, and with it the way for the answer.
                return
        if not answer.result().success:
            logger.error(
                f"Failed to make transition '{event.transition_name}' for LifecycleNode "
                f"'{self.node_name}'"
            )
