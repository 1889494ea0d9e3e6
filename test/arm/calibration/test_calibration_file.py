"""The file of a calibration: as it was written, whole or not at all, refused in one line."""

import re
import runpy
from pathlib import Path

import pytest
import yaml
from refusals import refusal

from vdl_ros.arm.calibration.calibration_file import Calibration, MeasuredJoint, read, write
from vdl_ros.arm.driver.driver import SafetyConfig, UsbConfig
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.common.settings import SettingError, select

MEASURED = Calibration(
    'truth', {'base': MeasuredJoint(1, 0.4, 0.38, 0.1, 0.08, 0.03),
              'elbow': MeasuredJoint(-1, sag=0.012)},
    {'base_sign': 1, 'base_max_run_time': 13.6, 'elbow_sign': -1},
    {'base_speed': 0.39, 'dead_zone': 0.03, 'sag': 0.012}, {'response_time': 0.08})


@pytest.fixture
def path(tmp_path):
    write(tmp_path / 'arm.yaml', MEASURED)
    return tmp_path / 'arm.yaml'


def test_what_was_written_is_read(path):
    found = read(path)
    assert repr(found) == repr(MEASURED)  # NaN does not equal NaN
    assert 'load_slowdown' not in path.read_text()
    content = yaml.safe_load(path.read_text())
    assert content['schema'] == 'vdl_ros/arm_calibration/1'
    assert content['units'] == {'angle': 'rad', 'time': 's', 'speed': 'rad/s'}


def test_consumers_take_their_settings_and_launch_arguments_override_them(path):
    settings = read(path).settings
    assert (select(UsbConfig, settings).signs.base, select(UsbConfig, settings).signs.wrist) \
        == (1, -1)
    assert select(SafetyConfig, settings).base_max_run_time == 13.6
    assert select(SimulationConfig, settings) == SimulationConfig(
        base_speed=0.39, dead_zone=0.03, sag=0.012)
    launch = runpy.run_path(str(Path(__file__).resolve().parents[3] / 'launch' / 'arm.launch.py'))
    found = launch['calibrated']({'dead_zone': 0.01, 'xacro_args': 'hand_length=0.12'}, path)
    assert (found['dead_zone'], found['sag'], found['response_time']) == (0.01, 0.012, 0.08)
    assert found['xacro_args'] == 'base_velocity=0.39 hand_length=0.12'
    assert 'xacro_args' not in launch['calibrated']({'urdf': 'own.urdf'}, path)
    assert 'arm_calibration' in [each.name for each in launch['ARGUMENTS']]


def refused(path):
    """Return the line of the error with which a file is refused."""
    line = refusal(SettingError, read, path)
    assert line.startswith('arm_calibration: ')
    return line


def change(*keys, value):
    def changed(text):
        content = yaml.safe_load(text)
        within = content
        for key in keys[:-1]:
            within = within[key]
        within[keys[-1]] = value
        return yaml.safe_dump(content)
    return changed


def test_damaged_file_is_refused_in_one_line(path, tmp_path):
    whole = path.read_text()
    for damage, reason in (
            (lambda text: '', 'the file: None is not a mapping'),
            (lambda text: text[:len(text) // 2], 'is not|not allowed|expected|found'),
            (lambda text: text + ' ' * 100_000, 'larger than 100000 bytes'),
            (change('schema', value='vdl_ros/other/1'), "schema: 'vdl_ros/other/1' is not"),
            (change('units', 'angle', value='deg'), "units: .*'deg'.* is not"),
            (change('feedback', value='guess'),
             "feedback: 'guess' is not allowed: truth or camera"),
            (change('more', value=1), "the file: 'more' is not allowed here"),
            (change('joints', 'base', 'sign', value=0),
             'joints.base.sign: 0 is not allowed: -1 or 1'),
            (change('joints', 'base', 'speed_forward', value='fast'),
             "joints.base.speed_forward: 'fast' is not allowed: a number from 0.001 to 20"),
            (change('joints', 'base', value=[1]), r'joints.base.base: \[1\] is not a mapping'),
            (change('driver', 'base_sign', value=1.0), 'driver.base_sign: 1.0 is not allowed'),
            (change('driver', 'usb_backend', value='os:getcwd'),
             "driver: 'usb_backend' is not allowed"),
            (change('simulation', 'sag', value=1.0), 'simulation.sag: 1.0 is not allowed'),
            (change('controller', 'response_time', value=-1), 'controller.response_time: -1')):
        path.write_text(damage(whole))
        text = refused(path)
        assert str(path) in text
        assert re.search(reason, text), text
    assert 'No such file' in refused(tmp_path / 'none.yaml')


def test_file_that_cannot_be_written_leaves_the_older_one(path, monkeypatch):
    before = path.read_text()

    def full(descriptor):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('os.fsync', full)
    with pytest.raises(OSError, match='No space'):
        write(path, Calibration('camera', {}, {}, {}, {}))
    assert path.read_text() == before
    assert [each.name for each in path.parent.iterdir()] == ['arm.yaml']
