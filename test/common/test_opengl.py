"""Triton is loaded before OpenGL, and a backend that cannot be used is named."""

import os
import subprocess
import sys

import pytest

from vdl_ros.common import opengl

TRITON = """
with open('/proc/self/maps') as maps:
    print('triton after LLVM' if 'libLLVM' in maps.read() else 'triton first')
"""
ARM = """
from vdl_ros.arm.simulation.render import ArmRenderer
from vdl_ros.arm.simulation.scene import build_scene
with ArmRenderer(build_scene(), 32, 32) as renderer:
    print('picture', renderer.render([0.0] * 5).shape)
"""
ENVIRONMENT = """
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make
env = make(EnvConfig(env_id='Hopper-v5'), 1, num_envs=1, render=True)
env.reset()
print('picture', env.render()[0].shape)
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(('program', 'shape'), [
    (ARM, (32, 32, 3)), (ENVIRONMENT, (480, 480, 3))], ids=['arm', 'env'])
def test_programs_that_render_load_triton_first(tmp_path, program, shape):
    (tmp_path / 'triton.py').write_text(TRITON)
    path = os.pathsep.join([str(tmp_path), os.environ.get('PYTHONPATH', '')])
    done = subprocess.run(
        [sys.executable, '-c', program], env={**os.environ, 'PYTHONPATH': path},
        capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines() == ['triton first', f'picture {shape}'], done.stderr


def test_a_backend_that_mujoco_cannot_import_is_named_and_nothing_is_drawn(monkeypatch, capsys):
    monkeypatch.setattr(opengl, '_refused', '')
    monkeypatch.setattr(opengl, '_loads', lambda library: False)
    for value, reason in (('osmesa', "'osmesa' needs libOSMesa, which is not installed; unset"),
                          ('nonsense', "'nonsense' is not allowed: egl, osmesa, glfw or disable")):
        monkeypatch.setenv('MUJOCO_GL', value)
        opengl.refuse_unusable_backend()
        assert os.environ['MUJOCO_GL'] == 'disable'
        assert reason in capsys.readouterr().err
        with pytest.raises(opengl.OpenGLError, match=f'^OpenGL: MUJOCO_GL: {reason}'):
            opengl.check_drawing()
