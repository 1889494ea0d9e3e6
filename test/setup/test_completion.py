"""Completion of `ros2` in bash, without a ROS 2 distribution."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASK = '''
source "$0"
while read -ra words; do
  COMP_WORDS=(ros2 "${words[@]}") COMP_CWORD=${#words[@]} COMPREPLY=()
  _ros2_complete
  echo "${COMPREPLY[@]}"
done
'''
EXPECTED = {
    'r': 'run',
    'run vdl_ros train_': 'train_pose',
    'launch vdl_ros a': 'actors.launch.py arm.launch.py',
    'launch vdl_ros actors.launch.py num_a': 'num_actors:=',
    'run vdl_ros plot --sm': '--smooth',
    'run vdl_ros teleop --ros-args -p held': 'held_timeout:=',
    'run no_such_package t': '',
}


@pytest.mark.slow
def test_tab_completes_verbs_executables_files_and_their_arguments():
    done = subprocess.run(
        ['bash', '-c', ASK, ROOT / 'bootstrap' / 'completion.bash'],
        input='\n'.join([*EXPECTED, '']), capture_output=True, text=True, check=True)
    assert dict(zip(EXPECTED, done.stdout.splitlines(), strict=True)) == EXPECTED
