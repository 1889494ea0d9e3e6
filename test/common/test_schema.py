"""Mistakes in files of a format: one line each, with place, value and what is allowed."""

from typing import Annotated

import pytest
from msgspec import Meta, Struct

from vdl_ros.common.schema import choice, converted, matching


class Wheel(Struct, forbid_unknown_fields=True):
    name: Annotated[str, matching('[a-z]+', 'small letters')]
    sizes: dict[str, Annotated[float, Meta(gt=0.0)]] = {}


class Cart(Struct, forbid_unknown_fields=True):
    wheels: Annotated[tuple[Wheel, ...], Meta(min_length=1)]
    drive: Annotated[str, choice('front', 'rear')] = 'rear'
    seats: Annotated[int, Meta(le=4)] | None = None

    def __post_init__(self):
        if len(self.wheels) > 4:
            raise ValueError('wheels: too many')


GOOD = {'wheels': [{'name': 'a'}]}


def test_a_mistake_is_one_line_with_its_place():
    assert converted(GOOD | {'seats': '2'}, Cart, 'f', ValueError, strict=False).seats == 2
    for changed, line in (
            ({'wheels': [{'name': 'a'}, {'name': 'A\n'}]},
             "wheels[1]: name: 'A\\n' is not allowed: small letters"),
            ({'wheels': []}, 'wheels: [] is not allowed: a list of length >= 1'),
            ({'wheels': [{}]}, 'wheels[0]: name: missing'),
            ({'wheels': [{'name': 'a', 'size': 1}]},
             "wheels[0]: size: no such key; did you mean 'sizes'?"),
            ({'wheels': [{'name': 'a', 'sizes': {'x': -1}}]},
             "wheels[0]: sizes: {'x': -1} is not allowed: a number > 0.0"),
            ({'drive': 'up'}, "drive: 'up' is not allowed: one of 'front', 'rear'"),
            ({'seats': 5}, 'seats: 5 is not allowed: a whole number <= 4'),
            ({'seats': 'x' * 500}, f"seats: '{'x' * 76}... is not allowed: a whole number"),
            ({'wheels': GOOD['wheels'] * 5}, 'wheels: too many')):
        with pytest.raises(ValueError, match='^') as error:
            converted(GOOD | changed, Cart, 'file.yaml', ValueError)
        assert str(error.value) == f'file.yaml: {line}'
