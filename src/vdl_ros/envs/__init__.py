"""Gymnasium environments and their factory, without ROS; the import registers those of the arm."""

from vdl_ros.envs.registration import register

register()
