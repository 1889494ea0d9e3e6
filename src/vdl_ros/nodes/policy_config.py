"""Settings of the node ``policy``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from vdl_ros.common.quoting import quoted
from vdl_ros.common.run_files import checkpoint_file
from vdl_ros.common.settings import SettingError, setting

__all__ = ['PolicyConfig']


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """The node ``policy``."""

    policy: str = setting(
        '', 'Policy that follows arm/target: checkpoint, .onnx file of export_policy, or name of '
        'one in this package; empty: none.')
    policy_stale_after: float = setting(
        0.3, 'Motors are off while joint states are older; arm.launch.py sets 0.5 s with '
        'feedback:=camera.', minimum=0.01, maximum=10.0, unit='s')
    policy_give_up_after: float = setting(
        10.0, 'A target is given up after motors were off for this.', minimum=0.1, maximum=3600.0,
        unit='s')
    policy_viewer_timeout: float = setting(
        0.0, 'Motors are off after this without a message on arm/viewer_alive; 0: none needed. '
        'arm.launch.py sets 1 s with a viewer.', minimum=0.0, maximum=60.0, unit='s')

    @property
    def path(self) -> Path:
        """
        Return the file of the policy.

        Raises:
            SettingError: there is none.
        """
        if not self.policy:
            raise SettingError('policy: not set: policy:=runs/<name>')
        path = checkpoint_file(Path(self.policy))
        if path.is_file():
            return path
        raise SettingError(f'policy: {quoted(self.policy)} is not allowed: a checkpoint, an .onnx '
                           'file, or the name of a policy in models/')
