"""What ends a process that waits in an environment."""


class EnvStopped(Exception):  # noqa: N818
    """The process ends while an environment waits for something, such as a robot."""
