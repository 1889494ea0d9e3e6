"""Gymnasium environments and their factory, without ROS.

The import registers those of the arm, and the worlds of mpe2.
"""

from vdl_ros import gymnasium_error


class _TooOldError(ImportError, ValueError):
    """What cannot be imported; programs say it in one line, as of any bad input."""


if _error := gymnasium_error():
    raise _TooOldError(_error)

from vdl_ros.envs.registration import register
from vdl_ros.envs.worlds import register_mpe2

register()
register_mpe2()
