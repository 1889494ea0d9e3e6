"""Completion of `ros2` in bash, without a ROS 2 distribution."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASK = '''
source "$0"
COMP_WORDS=(ros2 "$@") COMP_CWORD=$#
_ros2_complete
printf '%s\\n' "${COMPREPLY[@]}"
'''


@pytest.mark.parametrize(('words', 'expected'), [
    (['r'], ['run']),
    (['run', 'vdl_ros', 'train_'], ['train_pose']),
    (['launch', 'vdl_ros', 'a'], ['actors.launch.py', 'arm.launch.py']),
    (['launch', 'vdl_ros', 'actors.launch.py', 'num_a'], ['num_actors:=']),
    (['run', 'vdl_ros', 'plot', '--sm'], ['--smooth']),
    (['run', 'vdl_ros', 'teleop', '--ros-args', '-p', 'held'], ['held_timeout:=']),
    (['run', 'no_such_package', 't'], ['']),
], ids=lambda words: words[-1])
def test_tab_completes(words, expected):
    done = subprocess.run(
        ['bash', '-c', ASK, ROOT / 'bootstrap' / 'completion.bash', *words],
        capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == expected
