"""Lets `python -m ros2_command` be the command `ros2`."""

import sys

from . import main

sys.exit(main())
