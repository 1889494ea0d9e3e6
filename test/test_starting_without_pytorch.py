"""Launch files, cluster, actors and drivers start without PyTorch and MuJoCo, which are slow."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.process
def test_what_starts_processes_imports_neither_pytorch_nor_mujoco():
    files = [str(each) for each in sorted((ROOT / 'launch').glob('*.launch.py'))]
    assert len(files) > 5
    code = (
        'import runpy, sys\n'
        'sys.modules["torch"] = sys.modules["mujoco"] = None\n'
        f'for file in {files}: runpy.run_path(file)["generate_launch_description"]()\n'
        'import vdl_ros.tools.cluster, vdl_ros.nodes.actor, vdl_ros.nodes.world_actor\n'
        'import vdl_ros.nodes.arm_driver\n')
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
