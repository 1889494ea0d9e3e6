"""The page of a view of a training: the policy that acts, text, and curves; it has no inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from vdl_ros.view.training_status import (
    CURVES,
    Curve,
    TrainingStatus,
    losses_text,
    training_text,
)

__all__ = ['TrainingPage']

# Height of the image in the scene, of a curve in the panel in pixels.
_IMAGE_HEIGHT = 2.0
_CURVE_HEIGHT = 170
# An image's y axis points down.
_UPRIGHT = (0.0, 1.0, 0.0, 0.0)
_LINE = '#1f6feb'


class TrainingPage:
    """The page; its methods are called from one thread."""

    def __init__(self, server: viser.ViserServer) -> None:
        """Build the page without curves and without an image."""
        self._server = server
        server.gui.set_panel_label('Training')
        server.gui.configure_theme(
            control_width='large', brand_color=(35, 94, 190), show_logo=False,
            show_share_button=False)
        scene = server.scene
        scene.set_up_direction('+y')
        scene.world_axes.visible = False
        # The panel covers the right of the page.
        server.initial_camera.position = (0.4, 0.0, 2.0)
        server.initial_camera.look_at = (0.4, 0.0, 0.0)
        self._text: Any = server.gui.add_markdown('Waiting for the training.', order=0.0)
        self._losses: Any = server.gui.add_markdown('', order=100.0)
        self._curves: dict[str, Any] = {}
        self._image: Any = None
        self._shape: tuple[int, ...] = ()

    @property
    def watched(self) -> bool:
        """Return whether a browser shows the page."""
        return bool(self._server.get_clients())

    def show(self, status: TrainingStatus, now: float) -> None:
        """Show text and curves; ``now`` is monotonic, s."""
        for element, text in ((self._text, training_text(status, now)),
                              (self._losses, losses_text(status))):
            if element.content != text:
                element.content = text
        for order, tag in enumerate(CURVES):
            if tag in status.curves:
                self._show_curve(tag, order, status.curves[tag])

    def _show_curve(self, tag: str, order: int, curve: Curve) -> None:
        data = curve.arrays()
        if tag not in self._curves:
            self._curves[tag] = self._server.gui.add_uplot(
                data, ({'label': 'agent steps'}, {'label': tag, 'stroke': _LINE, 'width': 2}),
                title=CURVES[tag], height=_CURVE_HEIGHT, legend={'show': False},
                scales={'x': {'time': False}}, order=10.0 + order)
        elif not all(map(np.array_equal, data, self._curves[tag].data)):
            self._curves[tag].data = data

    def show_image(self, pixels: NDArray[np.uint8]) -> None:
        """Show an image, RGB, uint8 [H, W, 3]."""
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
