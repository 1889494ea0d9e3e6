"""Gymnasium environments and their factory, without ROS.

The import registers those of the arm, and the worlds of mpe2.
"""

from vdl_ros import TooOldError, gymnasium_error

if _error := gymnasium_error():
    raise TooOldError(_error)

from vdl_ros.envs.registration import register
from vdl_ros.envs.worlds import register_mpe2

register()
register_mpe2()
