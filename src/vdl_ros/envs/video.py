"""Videos of episodes: H.264 in MP4 files, written with PyAV."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make

__all__ = ['VideoWriter', 'record_episode']

SMALLEST_SIDE = 320


class VideoWriter:
    """
    Writes images uint8 [H, W, 3] to an MP4 file; use it in a ``with`` statement.

    The file gets its name when it is complete; after an error it is removed.
    """

    def __init__(self, path: str | Path, fps: float) -> None:
        """
        Start a video with ``fps`` images per second.

        Raises:
            EnvError: PyAV is not installed.
        """
        try:
            import av
        except ImportError:
            raise EnvError('videos need PyAV: pip install av') from None
        self.path = Path(path)
        self.images = 0
        self._rate = Fraction(fps).limit_denominator(1001)
        self._partial = self.path.with_name(f'.{self.path.name}.partial')
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._container = av.open(
            str(self._partial), 'w', format='mp4', options={'movflags': 'faststart'})
        self._stream: Any = None

    def add(self, image: NDArray[np.uint8]) -> None:
        """
        Append one image; all must have the size of the first.

        Raises:
            ValueError: not an image, or of another size.
        """
        from av import VideoFrame

        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise ValueError(f'image: {image.dtype} {image.shape} is not uint8 [H, W, 3]')
        # Players blur small images; Atari's 160 columns are doubled.
        scale = -(-SMALLEST_SIDE // min(image.shape[:2]))
        image = image.repeat(scale, axis=0).repeat(scale, axis=1)
        # yuv420p needs even sides.
        height, width = image.shape[0] // 2 * 2, image.shape[1] // 2 * 2
        if self._stream is None:
            self._stream = self._container.add_stream(
                'libx264', rate=self._rate, options={'crf': '20', 'threads': '1'})
            self._stream.width, self._stream.height = width, height
            self._stream.pix_fmt = 'yuv420p'
        elif (self._stream.height, self._stream.width) != (height, width):
            raise ValueError(
                f'image: {height} x {width} is not the {self._stream.height} x '
                f'{self._stream.width} of the first')
        frame = VideoFrame.from_ndarray(
            np.ascontiguousarray(image[:height, :width]), format='rgb24')
        self._container.mux(self._stream.encode(frame))
        self.images += 1

    def __enter__(self) -> VideoWriter:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the file, or remove it after an error."""
        try:
            if self._stream is not None and kind is None:
                self._container.mux(self._stream.encode(None))
            self._container.close()
            if self._stream is not None and kind is None:
                self._partial.replace(self.path)
        finally:
            self._partial.unlink(missing_ok=True)


def record_episode(
    config: EnvConfig,
    seed: int,
    act: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]],
    path: str | Path,
    fps: float | None = None,
    max_steps: int = 27_000,
) -> tuple[float, int]:
    """
    Record one episode of a policy; return its raw return and its length in steps.

    Args:
        config: the environment; a video of a game shows all lives.
        seed: of the episode.
        act: function from observations [1, ...], is_reset [1] and previous rewards [1] to
            actions [1, ...].
        path: the MP4 file.
        fps: steps per second; default: real time, 60 / ``frame_skip`` for Atari.
        max_steps: largest number of steps; default: 30 minutes of Atari.

    Raises:
        EnvError: the environment cannot be created or rendered, or PyAV is not installed.
    """
    # Render into memory, without a display and without pygame's greeting.
    os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
    os.environ.setdefault('PYGAME_HIDE_SUPPORT_PROMPT', '1')
    config = dataclasses.replace(config, episodic_life=False)
    env = make(config, seed, num_envs=1, render=True)
    try:
        observations, _ = env.reset()
        rewards: NDArray[Any] = np.zeros(1)
        total, steps, over = 0.0, 0, False
        with VideoWriter(path, fps or float(env.metadata.get('render_fps', 30))) as video:
            video.add(_image(env.render()))
            while not over and steps < max_steps:
                observations, rewards, terminated, truncated, _ = env.step(
                    act(observations, np.array([steps == 0]), rewards))
                video.add(_image(env.render()))
                total += float(rewards[0])
                steps += 1
                over = bool(terminated[0] or truncated[0])
        return total, steps
    finally:
        env.close()


def _image(images: tuple[Any, ...] | None) -> NDArray[np.uint8]:
    if images is None or images[0] is None:
        raise EnvError('the environment cannot render images')
    return np.asarray(images[0], np.uint8)
