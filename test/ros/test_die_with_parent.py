"""A node ends with its launch, even if the launch is killed while the node starts."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

CHILD = """
import os
import time
import vdl_ros
parent = os.getppid()
print('starts', flush=True)
while os.getppid() == parent:  # as long as imports may take
    time.sleep(0.01)
from vdl_ros.ros.process import die_with_parent
try:
    die_with_parent()
    print('lives')
except KeyboardInterrupt:
    print('ends')
"""
PARENT = """
import subprocess
import sys
subprocess.run([sys.executable, '-c', sys.argv[1]])
"""


def test_a_node_ends_if_its_parent_died_during_its_start():
    parent = subprocess.Popen(
        [sys.executable, '-c', PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == 'starts\n'
    parent.kill()
    # Until end of file: then the child has ended too.
    assert parent.communicate(timeout=120)[0] == 'ends\n'
