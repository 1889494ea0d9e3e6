"""
The side panel: emergency stop, buttons for the motors, sliders for the joints, camera, state.

What people do there comes out of :meth:`Panel.events` as small records, in their order. viser
calls back in threads of its own; nothing here does more in them than to write such a record down.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import Positions
from vdl_ros.arm.model.joints import JOINTS

__all__ = ['EmergencyStop', 'Event', 'Gone', 'Hold', 'Lamp', 'MoveTo', 'Panel', 'Release']

#: A button that is held is heard so often, Hz.
HOLD_HZ = 20.0
# What forward and backward look like; see urdf/owi535.urdf.xacro.
WORDS = {'base': ('left', 'right'), 'shoulder': ('down', 'up'), 'elbow': ('down', 'up'),
         'wrist': ('down', 'up'), 'gripper': ('open', 'close')}


@dataclass(frozen=True)
class Hold:
    """A motor's button is pressed, or still held."""

    client: int
    joint: str
    direction: int


@dataclass(frozen=True)
class Release:
    """A motor's button is let go."""

    client: int
    joint: str
    direction: int


@dataclass(frozen=True)
class Gone:
    """A browser has closed."""

    client: int


@dataclass(frozen=True)
class Lamp:
    """The lamp is switched."""

    on: bool


@dataclass(frozen=True)
class EmergencyStop:
    """The emergency stop is engaged or released."""

    engaged: bool


@dataclass(frozen=True)
class MoveTo:
    """The joints shall go to these positions, rad."""

    positions: Mapping[str, float]


Event = Hold | Release | Gone | Lamp | EmergencyStop | MoveTo


class Panel:
    """The panel; its methods are called from one thread."""

    def __init__(self, server: viser.ViserServer) -> None:
        """Lay it out; motors and sliders come with the joints' limits."""
        self._server = server
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._movers: list[Any] = []
        self._sliders: dict[str, Any] = {}
        # Sliders follow the joints until somebody means something by them.
        self._following = True
        gui = server.gui
        gui.set_panel_label('OWI-535')
        gui.configure_theme(
            brand_color=(35, 94, 190), show_logo=False, show_share_button=False)
        self._stop = gui.add_button('EMERGENCY STOP', color='red', hint='All motors off, at once')
        self._release = gui.add_button('Release the emergency stop', disabled=True, color='gray')
        self._state = gui.add_markdown('waiting for the arm')
        self._picture_folder = gui.add_folder('Camera')
        self._picture: Any = None
        self._motors_folder = gui.add_folder('Motors: hold a button')
        with self._motors_folder:
            self._add_motors()
        self._joints_folder = gui.add_folder('Joints: set, then go')
        self._on(self._stop, lambda: EmergencyStop(True))
        self._on(self._release, lambda: EmergencyStop(False))

        @server.on_client_disconnect
        async def _(client: viser.ClientHandle) -> None:
            self._events.put(Gone(client.client_id))

    def events(self) -> Iterator[Event]:
        """Yield what people have done since the last time."""
        while True:
            try:
                yield self._events.get_nowait()
            except queue.Empty:
                return

    def set_limits(self, lower: Positions, upper: Positions) -> None:
        """Offer a slider for each joint, from ``lower`` to ``upper``, float64 [5], rad."""
        for each in self._sliders.values():
            each.remove()
        self._sliders.clear()
        with self._joints_folder:
            for index, joint in enumerate(JOINTS):
                low, high = math.degrees(lower[index]), math.degrees(upper[index])
                self._sliders[joint] = self._server.gui.add_slider(
                    f'{joint} (°)', min=round(low, 1), max=round(high, 1), step=0.1,
                    initial_value=min(max(0.0, round(low, 1)), round(high, 1)), order=index)
                self._take_by_hand(self._sliders[joint])
            if not any(button.label == 'Go' for button in self._movers):
                self._add_going()

    def show_state(self, text: str) -> None:
        """Show what is known of the arm, Markdown."""
        if self._state.content != text:
            self._state.content = text

    def show_picture(self, picture: NDArray[np.uint8]) -> None:
        """Show a picture, RGB, uint8 [height, width, 3]."""
        if self._picture is None:
            with self._picture_folder:
                self._picture = self._server.gui.add_image(
                    picture, format='jpeg', jpeg_quality=80)
        else:
            self._picture.image = picture

    def show_lamp(self, on: bool) -> None:
        """Show whether the lamp is lit, without switching it."""
        if self._lamp.value != on:
            self._lamp.value = on

    def show_emergency_stop(self, engaged: bool) -> None:
        """Show whether it is engaged; what moves the arm is disabled then."""
        for each in self._movers:
            each.disabled = engaged
        self._release.disabled = not engaged
        self._release.color = 'green' if engaged else 'gray'
        self._stop.label = 'EMERGENCY STOP IS ENGAGED' if engaged else 'EMERGENCY STOP'

    def follow(self, positions: Sequence[float]) -> None:
        """Put the sliders where the joints are, rad, unless somebody has set one since."""
        if not self._following:
            return
        for slider, value in zip(self._sliders.values(), positions, strict=False):
            if math.isnan(value):
                continue
            degrees = round(min(max(math.degrees(value), slider.min), slider.max), 1)
            if slider.value != degrees:
                slider.value = degrees

    def _add_motors(self) -> None:
        for joint in JOINTS:
            for direction, word in zip((1, -1), WORDS[joint], strict=True):
                button = self._server.gui.add_button(f'{joint} {word}')
                self._movers.append(button)
                self._hold(button, joint, direction)
        self._lamp: Any = self._server.gui.add_checkbox('lamp', initial_value=False)

        async def switched(event: Any) -> None:
            # What the program sets has no client.
            if event.client_id is not None:
                self._events.put(Lamp(bool(event.target.value)))

        self._lamp.on_update(switched)

    def _hold(self, button: Any, joint: str, direction: int) -> None:
        async def held(event: Any) -> None:
            self._following = True
            self._events.put(Hold(event.client_id, joint, direction))

        async def let_go(event: Any) -> None:
            self._events.put(Release(event.client_id, joint, direction))

        button.on_hold(held, callback_hz=HOLD_HZ)
        button.on_click(let_go)

    def _take_by_hand(self, slider: Any) -> None:
        async def moved(event: Any) -> None:
            if event.client_id is not None:
                self._following = False

        slider.on_update(moved)

    def _add_going(self) -> None:
        go = self._server.gui.add_button('Go', color='blue', order=10)
        home = self._server.gui.add_button('Home', order=11, hint='Straight up, gripper closed')
        self._movers += [go, home]
        self._on(go, lambda: MoveTo({
            joint: math.radians(slider.value) for joint, slider in self._sliders.items()}))
        self._on(home, lambda: MoveTo(dict.fromkeys(JOINTS, 0.0)))

    def _on(self, button: Any, make: Callable[[], Event]) -> None:
        async def clicked(_: Any) -> None:
            self._events.put(make())

        button.on_click(clicked)
