"""Settings that contradict each other are refused where they are checked."""

import pytest

from vdl_ros.rl.config import TrainConfig, verify
from vdl_ros.settings import SettingError, build, settings_of


def test_defaults_are_allowed():
    build(TrainConfig, {each.name: each.default for each in settings_of(TrainConfig).values()})
    verify(TrainConfig())


@pytest.mark.parametrize(('batch', 'every', 'lag'), [(5, 1, 4), (1, 5, 4), (2, 3, 5)])
def test_a_credit_smaller_than_what_an_answer_needs_is_refused(batch, every, lag):
    bad = TrainConfig(batch_size=batch, publish_every=every, max_policy_lag=lag)
    with pytest.raises(SettingError, match=rf'^max_policy_lag: {lag} .* = {batch * every}'):
        verify(bad)
    verify(TrainConfig(batch_size=batch, publish_every=every, max_policy_lag=batch * every))
