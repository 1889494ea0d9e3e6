"""Positions that are sent for changes."""

import re

import numpy as np
import pytest
import yaml
from refusals import refusal
from robot_contract import GOOD

from vdl_ros.robots.contract import ContractError
from vdl_ros.robots.contract_files import read_contract
from vdl_ros.robots.positions import Positions


@pytest.fixture
def contract(tmp_path):
    def read(**actions):
        part = GOOD['actions']['parts'][0] | {'low': -0.1, 'high': 0.1, 'change_of': 'speed'}
        (tmp_path / 'mine.yaml').write_text(yaml.safe_dump(
            GOOD | {'actions': GOOD['actions'] | {'parts': [part | actions.pop('part', {})]}
                    | actions}))
        return read_contract(tmp_path / 'mine.yaml')
    return read


def test_changes_add_up_within_the_limits_and_not_far_from_where_the_robot_is(contract):
    positions = Positions(contract())

    def sent(change, measured, ticks=1):
        for _ in range(ticks):
            positions.tick()
        found = positions.of(np.array([change]), {'speed': measured})
        return found if found is None else pytest.approx(found[0])

    assert positions.of(np.array([0.1]), {}) is None  # before the first measurement
    assert sent(0.1, 0.5) == 0.6
    assert sent(0.0, 0.58) == 0.6  # who hangs below it does not sink
    assert sent(0.1, 0.58) == 0.7
    assert sent(0.1, 0.58) == 0.78  # who is held goes no further
    assert sent(0.1, 0.95) == 0.88
    assert sent(0.05, 0.8) == 0.93
    # Of several within a tick, as of a joystick, the last one counts.
    assert [sent(change, 0.8, ticks=0) for change in (0.02, -0.05, 0.0)] == [0.90, 0.83, 0.83]
    positions.forget()
    assert sent(0.1, 0.95) == 1.0  # the limit
    positions.forget()
    assert sent(0.0, 1.2) == 1.2  # who is beyond it is not moved
    assert sent(0.1, 1.2) == 1.2
    assert sent(-0.1, 1.2) == 1.1
    # Who sags, or is measured beyond its place, does not creep out.
    positions.forget()
    assert [sent(0.1, measured) for measured in (0.95, 1.03, 1.06, 1.09)] == [1.0] * 4
    # Before anything was sent it is where the episode began.
    positions.forget({'speed': 0.5})
    assert sent(0.1, 0.9) is None
    assert positions.doubt({'speed': 0.9}) == 'speed: 0.9 cannot be: it was 0.5'
    assert sent(0.1, 0.6) == 0.7


def test_positions_are_reached_by_steps_and_none_is_to_stay(contract):
    positions = Positions(contract(part={
        'change_of': '', 'position_of': 'speed', 'step': 0.1, 'low': -1, 'high': 0.9}))

    def sent(position, measured, ticks=1):
        for _ in range(ticks):
            positions.tick()
        return pytest.approx(positions.of(np.array([position]), {'speed': measured})[0])

    stay = np.nan
    assert positions.of(np.array([0.5]), {}) is None  # before the first measurement
    assert sent(stay, 0.2) == 0.2
    assert [sent(0.5, 0.2), sent(0.5, 0.3), sent(0.5, 0.4)] == [0.3, 0.4, 0.5]
    assert [sent(stay, 0.5), sent(0.5, 0.5), sent(0.45, 0.5)] == [0.5, 0.5, 0.45]
    assert [sent(1.0, 0.3), sent(1.0, 0.3)] == [0.5, 0.5]  # who is held goes no further
    assert [sent(1.0, 0.78, ticks=9), sent(stay, 0.78)] == [0.6, 0.6]
    # Where it cannot be: the measurement is wrong, or it was moved.
    assert positions.of(np.array([1.0]), {'speed': 0.95}) is None
    assert positions.doubt({'speed': 0.95}) == 'speed: 0.95 cannot be: it was sent to 0.6'
    positions.forget()
    assert [sent(1.0, 0.85), sent(2.0, 1.2)] == [0.9, 1.0]  # the limit, and back to it
    # Changes of a stick, from the latest tick.
    positions.forget()
    for change in (0.02, -0.05):
        moved = positions.moved(np.array([change]), {'speed': 0.3})
        assert positions.of(moved, {'speed': 0.3})[0] == pytest.approx(0.3 + change)
    assert np.isnan(positions.moved(np.zeros(1), {'speed': 0.3})).all()


def test_a_contract_says_what_of_changes_cannot_be(contract):
    for part, reason in (
            ({'change_of': 'sped'}, "change_of: 'sped' is not allowed: .* did you mean"),
            ({'neutral': 0.05}, 'neutral: 0.05 is not allowed: 0, with change_of'),
            ({'position_of': 'speed', 'step': 0.1}, "position_of: 'speed' is not allowed: only"),
            ({'change_of': '', 'position_of': 'speed'}, 'step: 0.0 is not allowed: above 0'),
            ({'unit': 'km/h'}, "change_of: 'speed' is not allowed: a feature with the scale"),
            ({'scale': 2.0}, "change_of: 'speed' is not allowed: a feature with the scale"),
            ({'step': 0.1}, 'step: 0.1 is not allowed: above 0 with position_of, and only'),
            ({'key': 'x', 'index': 0}, 'index: 0 is not allowed: only one of key and index')):
        assert re.search(reason, refusal(ContractError, contract, part=part)), part
    assert "sender: 'sent' is not allowed: '', as echo, with change_of" in refusal(
        ContractError, contract, echo='sent')
