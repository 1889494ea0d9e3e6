"""Settings of a training of the pose network."""

from __future__ import annotations

import dataclasses
import math

__all__ = ['TrainingConfig']


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of a training; the first limit that is reached ends it."""

    model: str = 'resnet'
    epochs: int = 30
    minutes: float = 0.0
    batch: int = 64
    lr: float = 2e-3
    weight_decay: float = 0.02
    seed: int = 0
    threads: int = 0
    workers: int = -1

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        for name, least in (('epochs', 1), ('minutes', 0), ('batch', 2), ('seed', 0),
                            ('threads', 0), ('workers', -1), ('weight_decay', 0)):
            value = getattr(self, name)
            if not value >= least or not math.isfinite(value):
                raise ValueError(f'--{name}: {value:g} is not allowed: at least {least}')
        if not 0.0 < self.lr < 1.0:
            raise ValueError(f'--lr: {self.lr:g} is not allowed: more than 0, less than 1')
