"""What a view of a training shows: newest values, curves and notes, as text and as arrays."""

import dataclasses
import math
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from vdl_ros.view.state_text import plain

#: Title and unit of each curve by tag, in the order of the page.
CURVES = {
    'charts/episodic_return': ('return, mean of the last 100 episodes', ''),
    'charts/success_rate': ('success', 'share'),
    'takeovers/success_alone': ('success without help', 'share'),
    'takeovers/share': ("a person's steps", 'share'),
    'charts/SPS': ('speed', 'agent steps/s'),
    'losses/loss': ('loss', ''),
    'losses/entropy': ('entropy', 'nats'),
}
# Age of values from which on the training counts as silent, s.
_SILENT_S = 5.0
_MAX_POINTS = 600
# Rows of the table: tag, label, format.
_ROWS = (
    ('charts/SPS', 'steps per second', ',.0f'),
    ('charts/episodic_return', 'return', '.2f'),
    ('charts/success_rate', 'success', '.0%'),
    ('takeovers/success_alone', 'success without help', '.0%'),
    ('takeovers/share', "a person's steps", '.0%'),
    ('charts/episodic_length', 'episode length', ',.1f'),
    ('flow/policy_lag_mean', 'policy lag, updates', '.1f'),
    ('flow/trajectories_lost', 'trajectories lost', ',.0f'),
)
# Tags with these beginnings are shown by their names.
_REACTION, _LOSSES = 'reaction_time/', 'losses/'
# Characters of a note, and tags that are kept, whoever publishes them.
_MAX_LENGTH, _MAX_TAGS = 300, 1000


class Curve:
    """Values against agent steps; of many every second is dropped, the last one never."""

    def __init__(self, most: int = _MAX_POINTS) -> None:
        self._most, self._stride = most, 1
        self._points: list[tuple[float, float]] = []
        self._newest: tuple[float, float] | None = None
        self._count = 0

    def add(self, x: float, y: float) -> None:
        """Add a point; one with a smaller x replaces those after it, as of a restarted learner."""
        if self._newest is not None and x <= self._newest[0]:
            self._points = [each for each in self._points if each[0] < x]
        self._newest = x, y
        if self._count % self._stride == 0:
            self._points.append(self._newest)
        self._count += 1
        if len(self._points) > self._most:
            self._points = self._points[::2]
            self._stride *= 2

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        points = list(self._points)
        if self._newest is not None and points[-1:] != [self._newest]:
            points.append(self._newest)
        x, y = np.array(points, np.float64).reshape(-1, 2).T
        return x.copy(), y.copy()


@dataclasses.dataclass
class TrainingStatus:
    """Newest values of the topics.

    Attributes:
        steps: learned from so far.
        values: scalars by tag.
        curves, times: those of :data:`CURVES` that have points, against agent steps and against
            minutes since the first one here.
        settings: of the training, by name.
        began_at, updated_at: time of the first and the newest scalar, s, monotonic.
    """

    env_id: str = ''
    algorithm: str = ''
    total_steps: int = 0
    steps: float = math.nan
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    curves: dict[str, Curve] = dataclasses.field(default_factory=dict)
    times: dict[str, Curve] = dataclasses.field(default_factory=dict)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    began_at: float = math.nan
    updated_at: float = -math.inf
    bottleneck: str = ''
    warning: str = ''
    without_images: str = ''

    def add(self, tag: str, value: float, now: float) -> None:
        """Add a scalar; 'agent_steps' comes before those of the same steps."""
        self.updated_at = now
        if math.isnan(self.began_at):
            self.began_at = now
        if tag == 'agent_steps':
            self.steps = value
            return
        if tag in self.values or len(self.values) < _MAX_TAGS:
            self.values[tag] = value
        if tag in CURVES and not math.isnan(self.steps):
            self.curves.setdefault(tag, Curve()).add(self.steps, value)
            self.times.setdefault(tag, Curve()).add((now - self.began_at) / 60.0, value)

    @property
    def left(self) -> float:
        """The time that the steps to come take, s; NaN: unknown."""
        rate = self.values.get('charts/SPS', 0.0)
        steps = self.total_steps - self.steps
        return steps / rate if rate > 0.0 and self.total_steps else math.nan


def training_text(status: TrainingStatus, now: float) -> str:
    title = ' · '.join(plain(each) for each in (status.env_id, status.algorithm) if each)
    paragraphs = [f'**{title}**'] if title else []
    if math.isnan(status.steps):
        return '\n\n'.join([*paragraphs, 'Waiting for the training.'])
    if status.bottleneck:
        paragraphs.append(f'**Bottleneck:** {plain(status.bottleneck, _MAX_LENGTH)}.')
    if now - status.updated_at > _SILENT_S:
        paragraphs.append('**The learner has been silent for '
                          f'{now - status.updated_at:.0f} s.**')
    if status.warning:
        paragraphs.append(f'Warning: {plain(status.warning, _MAX_LENGTH)}.')
    if status.without_images:
        paragraphs.append(f'No images of the policy: {plain(status.without_images, _MAX_LENGTH)}.')
    total = f' of {status.total_steps:,}' if status.total_steps else ''
    rows = [('agent steps', f'{status.steps:,.0f}{total}'),
            ('watched for', _duration(now - status.began_at))]
    rows += [('time left, about', _duration(status.left))] if status.left > 0.0 else []
    rows += [(label, format(status.values[tag], form)) for tag, label, form in _ROWS
             if tag in status.values]
    rows += _by_name(status, _REACTION)
    return '\n\n'.join([*paragraphs, _table(rows)])


def settings_text(status: TrainingStatus) -> str:
    rows = [(plain(name.replace('_', ' ')), plain(str(value)))
            for name, value in sorted(status.settings.items()) if value != '']
    return _table(rows) if rows else ''


def losses_text(status: TrainingStatus) -> str:
    rows = _by_name(status, _LOSSES)
    return _table([(name.partition(': ')[2], value) for name, value in rows]) if rows else ''


def _by_name(status: TrainingStatus, beginning: str) -> list[tuple[str, str]]:
    return [(plain(tag.replace('_', ' ').replace('/', ': ')), f'{status.values[tag]:.4g}')
            for tag in sorted(status.values) if tag.startswith(beginning)]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f'{minutes // 60}:{minutes % 60:02}:{rest:02}'


def _table(rows: list[tuple[str, str]]) -> str:
    return '\n'.join(['| | |', '|:--|--:|', *(f'| {name} | {value} |' for name, value in rows)])


# Height of the image in the scene; of a curve, and width of the panels beside it, in pixels.
_IMAGE_HEIGHT = 2.0
_CURVE_HEIGHT = 155
_TEXT_WIDTH, _CURVES_WIDTH = 320, 400
# An image's y axis points down.
_UPRIGHT = (0.0, 1.0, 0.0, 0.0)
_LINE = '#1f6feb'


class TrainingPage:
    """The page; its methods are called from one thread."""

    def __init__(self, server: viser.ViserServer) -> None:
        self._server = server
        gui = server.gui
        gui.set_panel_label('Training')
        gui.configure_theme(
            brand_color=(35, 94, 190), show_logo=False, show_share_button=False)
        gui.main_panel.dock_left()
        gui.main_panel.set_width(_TEXT_WIDTH)
        panel = gui.add_panel()
        panel.dock_right()
        panel.set_width(_CURVES_WIDTH)
        self._tabs = [(panel.add_tab(f'by {name}'), name) for name in ('agent steps', 'minutes')]
        scene = server.scene
        scene.set_up_direction('+y')
        scene.world_axes.visible = False
        server.initial_camera.position = (0.0, 0.0, 2.0)
        server.initial_camera.look_at = (0.0, 0.0, 0.0)
        self._progress: Any = gui.add_progress_bar(0.0, visible=False)
        self._text: Any = gui.add_markdown('Waiting for the training.')
        self._losses: Any = gui.add_markdown('')
        with gui.add_folder('Settings', expand_by_default=False):
            self._settings: Any = gui.add_markdown('')
        self._curves: dict[tuple[str, str], Any] = {}
        self._image: Any = None
        self._shape: tuple[int, ...] = ()

    @property
    def watched(self) -> bool:
        return bool(self._server.get_clients())

    def show(self, status: TrainingStatus, now: float) -> None:
        self._text.content, self._losses.content = training_text(status, now), losses_text(status)
        self._settings.content = settings_text(status)
        if status.total_steps and not math.isnan(status.steps):
            self._progress.value = min(100.0, 100.0 * status.steps / status.total_steps)
            self._progress.visible = True
        for (tab, name), curves in zip(self._tabs, (status.curves, status.times), strict=True):
            with tab:
                for order, tag in enumerate(CURVES):
                    if tag in curves:
                        self._show_curve(tag, name, order, curves[tag])

    def _show_curve(self, tag: str, axis: str, order: int, curve: Curve) -> None:
        data, shown, (title, unit) = curve.arrays(), self._curves.get((tag, axis)), CURVES[tag]
        if shown is None:
            self._curves[tag, axis] = self._server.gui.add_uplot(
                data, ({'label': axis}, {'label': tag, 'stroke': _LINE, 'width': 2}),
                title=title, height=_CURVE_HEIGHT, padding=(10, 20, 0, 0), legend={'show': False},
                axes=({'label': axis, 'labelSize': 18, 'size': 30},
                      {'label': unit or ' ', 'labelSize': 18, 'size': 58}),
                scales={'x': {'time': False}}, order=float(order))
        elif not all(map(np.array_equal, data, shown.data)):
            shown.data = data

    def show_image(self, pixels: NDArray[np.uint8]) -> None:
        if pixels.shape == self._shape:
            self._image.image = pixels
            return
        if self._image is not None:
            self._image.remove()
        self._shape = pixels.shape
        height, width = pixels.shape[:2]
        self._image = self._server.scene.add_image(
            '/policy', pixels, render_width=_IMAGE_HEIGHT * width / height,
            render_height=_IMAGE_HEIGHT, format='jpeg', jpeg_quality=85, cast_shadow=False,
            receive_shadow=False, wxyz=_UPRIGHT)
