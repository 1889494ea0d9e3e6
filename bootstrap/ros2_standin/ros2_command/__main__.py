"""`python -m ros2_command` is the command `ros2`."""

import sys

from . import main

sys.exit(main())
