"""The udev rule that lets the group plugdev use the arm, and how to install it."""

from __future__ import annotations

from pathlib import Path

from vdl_ros.common.resources import find_resource

__all__ = ['how_to_install', 'udev_rule']


def udev_rule() -> Path:
    """Return the udev rule that gives users access to the arm; a relative path if missing."""
    rule = 'config/udev/99-owi535.rules'
    try:
        return find_resource(rule)
    except FileNotFoundError:
        return Path(rule)  # only for an error message, which must not fail itself


def how_to_install() -> str:
    """Return the commands that install the rule, in one line."""
    return (f'sudo cp {udev_rule()} /etc/udev/rules.d/ && sudo udevadm control --reload && '
            'sudo udevadm trigger, and add the user to the group plugdev')
