"""The arm's view: its 3D scene, and the panel with held buttons and the target.

A browser repeats the event of a held button. The events end when the button is released, the tab
is closed or the network fails: their absence switches the motor off.
"""

import collections
import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray
from viser import transforms

from vdl_ros.arm.geometry import CUBE_COLOUR, EDGE, ArmGeometry, Positions, Shape
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics

_GHOST = (0.25, 0.45, 0.95, 0.35)
_DOUBTFUL_GHOST = (0.55, 0.55, 0.60, 0.20)
# Smaller changes are not drawn, rad.
_VISIBLE_CHANGE = 1e-4


class ArmScene:
    """The scene in the browsers; only a table until there is a description."""

    def __init__(self, server: viser.ViserServer) -> None:
        self._server = server
        scene = server.scene
        scene.set_up_direction('+z')
        scene.world_axes.visible = False
        # Without shadows: for an arm this small they detach from the ground.
        scene.add_grid('/table', width=1.2, height=1.2, cell_size=0.05, section_size=0.1,
                       cell_color=(150, 156, 164), section_color=(190, 196, 204),
                       shadow_opacity=0.0)
        # A black arm is seen on neither white nor black, as the browser's setting would have it.
        scene.set_background_image(np.full((1, 1, 3), (138, 145, 154), np.uint8), format='png')
        scene.add_frame('/axes', axes_length=0.1, axes_radius=0.0015)
        for axis, name in enumerate('xy'):
            for tenth in range(1, 5):
                place = np.eye(3)[axis] * 0.1 * tenth
                scene.add_label(f'/axes/{name}{tenth}', f'{name} {tenth / 10} m', position=place)
        server.initial_camera.position = (0.44, -0.44, 0.34)
        server.initial_camera.look_at = (0.06, 0.03, 0.13)
        self._arm: _Drawn | None = None
        self._ghosts: dict[bool, _Drawn] = {}
        self._cube: Any = None

    def set_geometry(self, geometry: ArmGeometry) -> None:
        for drawn in (self._arm, *self._ghosts.values()):
            if drawn is not None:
                drawn.root.remove()
        self._arm = _Drawn(self._server, geometry, '/arm', None)
        self._ghosts = {True: _Drawn(self._server, geometry, '/estimated', _GHOST),
                        False: _Drawn(self._server, geometry, '/doubtful', _DOUBTFUL_GHOST)}
        self.show_ghost(None)

    def show(self, positions: Positions) -> None:
        """Show the joints at ``positions``, float64 [5], rad; NaN: unchanged."""
        if self._arm is not None:
            self._arm.move(positions)

    def show_ghost(self, positions: Positions | None, confident: bool = True) -> None:
        """Show an estimate, float64 [5], rad; None hides it."""
        for kind, ghost in self._ghosts.items():
            shown = positions is not None and kind == confident
            if shown:
                ghost.move(np.asarray(positions))
            ghost.root.visible = shown

    def show_cube(self, pose: NDArray[np.float64]) -> None:
        """Show the cube at a pose, float64 [7], m and a quaternion wxyz."""
        if self._cube is None:
            self._cube = self._server.scene.add_box(
                '/cube', dimensions=(EDGE, EDGE, EDGE), color=CUBE_COLOUR)
        if not np.allclose(pose, [*self._cube.position, *self._cube.wxyz], atol=1e-5):
            with self._server.atomic():
                self._cube.position, self._cube.wxyz = pose[:3], pose[3:]


class _Drawn:
    """One arm in the scene, below the node ``root``, with RGBA ``color`` instead of its own."""

    def __init__(self, server: viser.ViserServer, geometry: ArmGeometry, name: str,
                 color: tuple[float, float, float, float] | None) -> None:
        self._server, self._kinematics = server, Kinematics(geometry)
        self.root = server.scene.add_frame(name, show_axes=False)
        # Numbered: a name of the description may hold any letters.
        self._frames: dict[str, Any] = {}
        for index, shape in enumerate(geometry.shapes):
            if shape.link not in self._frames:
                self._frames[shape.link] = server.scene.add_frame(
                    f'{name}/link{len(self._frames)}', show_axes=False)
            self._add(f'{self._frames[shape.link].name}/{index}', shape, color)
        self._shown = np.full(len(JOINTS), np.inf)
        self.move(np.zeros(len(JOINTS)))

    def _add(self, name: str, shape: Shape,
             color: tuple[float, float, float, float] | None) -> None:
        red, green, blue, alpha = shape.color.tolist() if color is None else color
        # Slightly larger: surfaces of ghost and arm at the same place would flicker.
        scale = 1.0 if color is None else 1.002
        common: dict[str, Any] = {
            'color': (red, green, blue), 'opacity': None if alpha >= 1.0 else alpha,
            'wxyz': _wxyz(shape.origin), 'position': shape.origin[:3, 3], 'scale': scale}
        scene = self._server.scene
        if shape.kind == 'box':
            scene.add_box(name, dimensions=shape.size, **common)
        elif shape.kind == 'cylinder':
            radius, length = shape.size.tolist()
            scene.add_cylinder(name, radius=radius, height=length, **common)
        else:
            scene.add_icosphere(name, radius=float(shape.size[0]), **common)

    def move(self, positions: Positions) -> None:
        wanted = np.where(np.isnan(positions), self._shown, positions)
        if np.abs(wanted - self._shown).max() >= _VISIBLE_CHANGE:
            self._shown = wanted
            poses = self._kinematics.poses(wanted, self._frames)
            with self._server.atomic():
                for link, frame in self._frames.items():
                    frame.wxyz, frame.position = _wxyz(poses[link]), poses[link][:3, 3]


def _wxyz(pose: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(transforms.SO3.from_matrix(pose[:3, :3]).wxyz, np.float64)


class HeldButtons:
    """Buttons of any number of browsers; times are seconds of one clock.

    A button without repetition for ``timeout`` s is released.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._held: dict[tuple[int, str, int], float] = {}

    def hold(self, client: int, joint: str, direction: int, now: float) -> None:
        self._held[client, joint, direction] = now

    def release(self, client: int, joint: str, direction: int) -> None:
        self._held.pop((client, joint, direction), None)

    def release_all(self, client: int | None = None) -> None:
        """Release the buttons of a client; None: of all clients."""
        self._held = {key: at for key, at in self._held.items()
                      if client is not None and key[0] != client}

    def directions(self, now: float) -> list[int] | None:
        """Return -1, 0 or 1 for each joint; None if no button is held."""
        self._held = {key: at for key, at in self._held.items() if now - at <= self._timeout}
        if not self._held:
            return None
        found = [0] * len(JOINTS)
        for _, joint, direction in self._held:
            found[JOINTS.index(joint)] += direction
        # Opposite buttons cancel each other.
        return [max(-1, min(1, each)) for each in found]


Array = NDArray[np.float64]

#: Radius of the sphere, m: that of success.
RADIUS = 0.02
# Of a place, m; a browser may send any.
_MAX_COORDINATE = 1.0
# Where it is before there was a target, m.
_START = (0.15, 0.10, 0.20)
# A user who has not moved it for this time does not drag it any more, s.
_HELD_S = 1.0
_OPEN, _REACHED = (232, 126, 4), (39, 174, 96)


class DraggedTarget:
    """The sphere; it is hidden until :meth:`show`, and its methods are called from one thread."""

    def __init__(
        self, server: viser.ViserServer, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._places: collections.deque[Array] = collections.deque(maxlen=1)
        self._dragged_at = -_HELD_S
        self._handle: Any = server.scene.add_transform_controls(
            '/target', scale=0.08, disable_rotations=True, depth_test=False, position=_START,
            translation_limits=((-_MAX_COORDINATE, _MAX_COORDINATE),) * 3, visible=False)
        self._sphere: Any = server.scene.add_icosphere(
            '/target/sphere', radius=RADIUS, color=_OPEN, opacity=0.6)

        async def moved(event: Any) -> None:
            if event.phase == 'update' and self._handle.visible:
                self._places.append(np.array(event.target.position, np.float64))

        self._handle.on_update(moved)

    def dragged(self) -> Array | None:
        """Return where a user has dragged it since the last call, float64 [3], m, or None."""
        if not self._places:
            return None
        place = self._places.pop()
        self._dragged_at = self._clock()
        return np.clip(place, -_MAX_COORDINATE, _MAX_COORDINATE)

    def show(self, place: Array, reached: bool, *, fixed: bool = False) -> None:
        """Show the target, reached or not. A user who drags it knows its place better.

        ``place`` is in ``base_link``, float64 [3], m; NaN: it stays where it is. Nobody can drag
        one that is ``fixed``.
        """
        self._handle.visible = True
        self._handle.disable_axes = self._handle.disable_sliders = fixed
        held = not fixed and self._clock() - self._dragged_at < _HELD_S
        if np.isfinite(place).all() and not held and not np.allclose(
                self._handle.position, place, atol=1e-4):
            self._handle.position = place
        self._sphere.color = _REACHED if reached else _OPEN


#: Rate of the events of a held button, Hz.
HOLD_HZ = 20.0
# Labels of forward and backward, see urdf/owi535.urdf.xacro.
_LABELS = {'base': ('left', 'right'), 'shoulder': ('down', 'up'), 'elbow': ('down', 'up'),
          'wrist': ('down', 'up'), 'gripper': ('open', 'close')}
#: Buttons of ``record_episodes`` by its services.
EPISODES = {'start': 'Start episode', 'success': 'Save as success', 'failure': 'Save as failure',
            'discard': 'Discard'}
#: Buttons by which a person ends the episode of a training, by its services.
VERDICTS = {'success': 'Success', 'failure': 'Failure', 'discard': 'Discard the episode'}


@dataclass(frozen=True)
class Hold:
    """A motor's button was pressed, or is still held."""

    client: int
    joint: str
    direction: int


@dataclass(frozen=True)
class Release:
    """A motor's button was released."""

    client: int
    joint: str
    direction: int


@dataclass(frozen=True)
class ClientClosed:
    """A browser has disconnected."""

    client: int


@dataclass(frozen=True)
class Lamp:
    """The lamp was switched."""

    on: bool


@dataclass(frozen=True)
class EmergencyStop:
    """The emergency stop was engaged, or the one that was ``seen`` was released; None: none."""

    engaged: bool
    seen: object = None


@dataclass(frozen=True)
class MoveTo:
    """A user requested these joint positions, rad."""

    positions: Mapping[str, float]


@dataclass(frozen=True)
class Episode:
    """A request to ``record_episodes``: start, success, failure or discard."""

    request: str


@dataclass(frozen=True)
class Verdict:
    """What a person says of the episode of a training, one of :data:`VERDICTS`."""

    outcome: str


Event = Hold | Release | ClientClosed | Lamp | EmergencyStop | MoveTo | Episode | Verdict


class Panel:
    """The panel; its methods are called from one thread.

    What is assigned to an element goes to the browsers only if it changes. ``on_stop`` is called
    from the server's thread as soon as the emergency stop is pressed, before its event: the other
    thread may be busy. ``seen`` is called from there, too, when it is released, and returns which
    one is shown: that of the event, which waits.
    """

    def __init__(
        self, server: viser.ViserServer, on_stop: Callable[[], None] = lambda: None,
        seen: Callable[[], object] = lambda: None,
    ) -> None:
        self._server = server
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._movers: list[Any] = []
        self._sliders: dict[str, Any] = {}
        # Sliders follow the joints until a user moves one.
        self._following = True
        gui = server.gui
        gui.set_panel_label('OWI-535')
        gui.configure_theme(brand_color=(35, 94, 190), show_logo=False, show_share_button=False)
        self._stop = gui.add_button(
            'EMERGENCY STOP', color='red', hint='All motors off, at once; also by the key E')
        self._release = gui.add_button('Release the emergency stop', disabled=True, color='gray')
        self._state = gui.add_markdown('waiting for the arm')
        gui.main_panel.dock_right()
        self._camera: Any = gui.add_panel(visible=False)
        self._camera.float(x=15, y=15, width=300)
        self._camera_tab = self._camera.add_tab('Camera')
        self._image: Any = None
        self._motors_folder = gui.add_folder('Motors: hold a button')
        with self._motors_folder:
            self._add_motors()
        self._joints_folder = gui.add_folder('Joints: set, then go')
        # The last ones, so that no button moves when they come.
        self._episodes_folder = gui.add_folder('Demonstrations', visible=False)
        with self._episodes_folder:
            self._episodes_text = gui.add_markdown('')
            for request, label in EPISODES.items():
                self._on(gui.add_button(label), partial(Episode, request))
        self._training_folder = gui.add_folder('Training', visible=False)
        with self._training_folder:
            self._training_text = gui.add_markdown('')
            for outcome, label in VERDICTS.items():
                self._on(gui.add_button(label), partial(Verdict, outcome))
        self._on(self._stop, partial(EmergencyStop, True), on_stop)
        key = gui.add_command('Emergency stop', hotkey='E')
        self._on(key, partial(EmergencyStop, True), on_stop)
        self._on(self._release, lambda: EmergencyStop(False, seen()))

        @server.on_client_disconnect
        async def _(client: viser.ClientHandle) -> None:
            self._events.put(ClientClosed(client.client_id))

    def events(self) -> Iterator[Event]:
        while True:
            try:
                yield self._events.get_nowait()
            except queue.Empty:
                return

    def set_limits(self, lower: Positions, upper: Positions) -> None:
        """Add a slider for each joint, from ``lower`` to ``upper``, float64 [5], rad."""
        for each in self._sliders.values():
            each.remove()
        self._sliders.clear()
        with self._joints_folder:
            for index, joint in enumerate(JOINTS):
                low, high = math.degrees(lower[index]), math.degrees(upper[index])
                self._sliders[joint] = self._server.gui.add_slider(
                    f'{joint} (°)', min=round(low, 1), max=round(high, 1), step=0.1,
                    initial_value=min(max(0.0, round(low, 1)), round(high, 1)), order=index)
                self._sliders[joint].on_update(self._on_slider)
            if not any(button.label == 'Go' for button in self._movers):
                self._add_move_buttons()

    def show_state(self, text: str) -> None:
        self._state.content = text

    def show_image(self, pixels: NDArray[np.uint8]) -> None:
        if self._image is None:
            self._camera.visible = True
            with self._camera_tab:
                self._image = self._server.gui.add_image(pixels, format='jpeg', jpeg_quality=80)
        else:
            self._image.image = pixels

    def show_lamp(self, on: bool) -> None:
        """Show whether the lamp is lit, without switching it."""
        self._lamp.value = on

    def show_emergency_stop(self, engaged: bool) -> None:
        """Show whether it is engaged; buttons that move the arm are disabled then."""
        for each in self._movers:
            each.disabled = engaged
        self._release.disabled = not engaged
        self._release.color = 'green' if engaged else 'gray'
        self._stop.label = 'EMERGENCY STOP IS ENGAGED' if engaged else 'EMERGENCY STOP'
        self._stop.color = 'dark' if engaged else 'red'

    def show_episodes(self, text: str) -> None:
        """Show the state of ``record_episodes``, Markdown, with its buttons; '' hides them."""
        self._episodes_text.content = text
        self._episodes_folder.visible = bool(text)

    def show_training(self, text: str) -> None:
        """Show what a training does, Markdown, with its buttons; '' hides them."""
        self._training_text.content = text
        self._training_folder.visible = bool(text)

    def follow(self, positions: Sequence[float]) -> None:
        """Set the sliders to the joints' positions, rad, unless a user has moved one."""
        if not self._following:
            return
        for slider, value in zip(self._sliders.values(), positions, strict=False):
            if not math.isnan(value):
                degrees = min(max(math.degrees(value), slider.min), slider.max)
                slider.value = round(degrees, 1)

    def _add_motors(self) -> None:
        for joint in JOINTS:
            for direction, label in zip((1, -1), _LABELS[joint], strict=True):
                button = self._server.gui.add_button(f'{joint} {label}')
                self._movers.append(button)
                self._add_hold_callbacks(button, joint, direction)
        self._lamp: Any = self._server.gui.add_checkbox('lamp', initial_value=False)

        async def switched(event: Any) -> None:
            # A value set by the program has no client.
            if event.client_id is not None:
                self._events.put(Lamp(bool(event.target.value)))

        self._lamp.on_update(switched)

    def _add_hold_callbacks(self, button: Any, joint: str, direction: int) -> None:
        async def held(event: Any) -> None:
            if button.disabled:
                return
            self._following = True
            self._events.put(Hold(event.client_id, joint, direction))

        async def released(event: Any) -> None:
            self._events.put(Release(event.client_id, joint, direction))

        button.on_hold(held, callback_hz=HOLD_HZ)
        button.on_click(released)

    async def _on_slider(self, event: Any) -> None:
        if event.client_id is not None:
            self._following, slider = False, event.target
            slider.value = min(max(slider.value, slider.min), slider.max)

    def _add_move_buttons(self) -> None:
        go = self._server.gui.add_button('Go', color='blue', order=10)
        home = self._server.gui.add_button('Home', order=11, hint='Straight up, gripper closed')
        self._movers += [go, home]
        self._on(go, lambda: MoveTo({
            joint: math.radians(slider.value) for joint, slider in self._sliders.items()}))
        self._on(home, partial(MoveTo, dict.fromkeys(JOINTS, 0.0)))

    def _on(self, button: Any, make: Callable[[], Event],
            at_once: Callable[[], None] = lambda: None) -> None:
        async def clicked(_: Any) -> None:
            if not button.disabled:
                at_once()
                self._events.put(make())

        is_key = isinstance(button, viser.CommandHandle)
        (button.on_trigger if is_key else button.on_click)(clicked)
