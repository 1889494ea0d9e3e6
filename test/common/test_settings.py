"""Settings: values are checked; errors name the setting, the value and the allowed values."""

import re
from dataclasses import dataclass, fields
from typing import get_type_hints

import pytest

from vdl_ros.common.settings import (
    SettingError,
    as_dict,
    build,
    describe,
    select,
    setting,
    settings_of,
)
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.settings import ActorConfig, EvaluateConfig, TrainConfig


@dataclass(frozen=True)
class Example:
    """Settings of every type."""

    count: int = setting(3, 'How many.', minimum=1, maximum=10, unit='things')
    rate: float = setting(0.5, 'How fast.', minimum=0.0)
    low: float = setting(-1.0, 'How low.', maximum=0.0)
    loud: bool = setting(False, 'Whether it is loud.')
    name: str = setting('', 'What it is called.')
    kind: str = setting('alpha', 'Which it is.', choices=('alpha', 'beta'))
    internal: int = 7


KNOWN = settings_of(Example)


def test_invalid_values_are_errors_that_name_them():
    for name, value, allowed in (
            ('count', 0, 'a whole number from 1 to 10'), ('count', 11, 'a whole number'),
            ('count', 2.0, 'a whole number'), ('count', True, 'a whole number'),
            ('count', '3', 'a whole number'), ('rate', -1e-9, 'a number, at least 0'),
            ('rate', float('nan'), 'a number'), ('rate', 10**400, 'a number'),
            ('low', 0.1, 'a number, at most 0'), ('low', -10**400, 'a number'),
            ('loud', 1, 'true or false'), ('name', b'x', 'text'),
            ('kind', 'gamma', "one of 'alpha', 'beta'")):
        with pytest.raises(SettingError) as error:
            KNOWN[name].check(value)
        assert re.match(rf'{name}: .+ is not allowed: {allowed}.*\Z', str(error.value))


def test_text_is_parsed_to_the_type_of_the_setting_or_named():
    for name, text, value in (
            ('count', '10', 10), ('rate', '2', 2.0), ('rate', '1e-3', 1e-3), ('low', '-.5', -0.5),
            ('name', '7', '7'), ('name', ' a b', ' a b'), ('kind', 'beta', 'beta'),
            *(('loud', word, True) for word in ('true', ' On ', 'YES', '1')),
            *(('loud', word, False) for word in ('false', 'off', 'no', '0'))):
        parsed = KNOWN[name].parse(text)
        assert parsed == value, (name, text)
        assert type(parsed) is KNOWN[name].type, (name, text)
    never = settings_of(TrainConfig)['stop_at_return']
    assert never.parse('never') == never.default
    with pytest.raises(SettingError, match="'ever' is not allowed: 'never', or a number"):
        never.parse('ever')
    for name, text in (('count', '4.0'), ('count', ''), ('count', '99'), ('rate', 'nan'),
                       ('rate', '1e999'), ('loud', 'perhaps'), ('kind', 'Alpha')):
        with pytest.raises(SettingError, match=rf'^{name}: .* is not allowed: '):
            KNOWN[name].parse(text)


def test_build_fills_in_defaults_and_checks_names_and_values():
    built = build(Example, {'count': 5, 'rate': 2})
    assert built == Example(count=5, rate=2.0)
    assert type(built.rate) is float
    with pytest.raises(SettingError, match="; did you mean 'alpha'[?]$"):
        KNOWN['kind'].check('alhpa')
    for values, error in (({'cuont': 5}, r"^cuont: no such setting; did you mean 'count'\?$"),
                          ({'internal': 5}, '^internal: no such setting'),
                          ({'count': 50}, '^count: 50')):
        with pytest.raises(SettingError, match=error):
            build(Example, values)
    # Select ignores settings of other classes.
    assert select(Example, {'count': 4, 'of_another': 1}) == Example(count=4)
    with pytest.raises(SettingError, match='^count: 50'):
        select(Example, {'count': 50, 'of_another': 1})


def test_two_classes_may_share_what_they_inherit_and_no_other_name():
    @dataclass(frozen=True)
    class One(Example):
        own: int = setting(1, 'Of one.')

    @dataclass(frozen=True)
    class Two(Example):
        other: int = setting(1, 'Of the other.')

    @dataclass(frozen=True)
    class Other:
        rate: float = setting(1.0, 'Also.')

    assert list(settings_of(One, Two)) == [*KNOWN, 'own', 'other']
    with pytest.raises(TypeError, match=r'^Other\.rate: the name is already used$'):
        settings_of(Example, Other)


def test_settings_are_described_and_shown_with_all_digits_and_kept_as_a_dict():
    lines = describe(Example).splitlines()
    assert len(lines) == len(KNOWN)
    assert lines[0] == '  count  How many. A whole number from 1 to 10 (things); default 3.'
    assert lines[3] == '  loud   Whether it is loud. True or false; default False.'
    assert lines[5] == "  kind   Which it is. One of 'alpha', 'beta'; default 'alpha'."
    assert settings_of(TrainConfig)['seed'].allowed.endswith(f' to {2**31 - 1}')
    values = as_dict(Example(count=5), EnvConfig(num_envs=2))
    assert (values['count'], values['num_envs'], 'internal' in values) == (5, 2, False)
    assert select(Example, values) == Example(count=5)


def test_every_setting_has_a_sentence_and_a_valid_default():
    for cls in (EnvConfig, TrainConfig, RunConfig, ActorConfig, EvaluateConfig):
        known = settings_of(cls)
        assert len(known) == len(fields(cls)), cls
        for each in known.values():
            assert each.check(each.default) == each.default
            assert each.doc.endswith('.'), each
            assert get_type_hints(cls)[each.name] is each.type
