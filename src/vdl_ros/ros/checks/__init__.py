"""The checks of ``ros2 run vdl_ros doctor``: each takes a :class:`System`, and never raises."""

from collections.abc import Callable

from vdl_ros.ros.checks import machine
from vdl_ros.ros.checks.loopback import check_loopback
from vdl_ros.ros.environment import Finding, System

__all__ = ['CHECKS', 'Finding', 'System', 'check_loopback', 'run']

CHECKS: tuple[Callable[[System], Finding], ...] = (*machine.CHECKS, check_loopback)


def run(system: System, checks: tuple[Callable[[System], Finding], ...] = CHECKS) -> list[Finding]:
    """Run the checks in order; an exception becomes a failed finding."""
    findings = []
    for check in checks:
        try:
            findings.append(check(system))
        except Exception as error:  # the other checks still run
            name = check.__name__.removeprefix('check_').replace('_', ' ')
            findings.append(Finding(name, 'fail', f'{type(error).__name__}: {error}',
                                    'this is a bug of the check: please report it'))
    return findings
