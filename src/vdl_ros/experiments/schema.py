"""The JSON Schema of a file of specs, so that editors complete and check it."""

from __future__ import annotations

from typing import Any

from vdl_ros.common.settings import Setting, settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.experiments.checker import PRODUCTS
from vdl_ros.experiments.spec import (
    SUFFIXES,
    MetaConfig,
    ReferenceConfig,
    SearchConfig,
    agent_settings,
    listed_agent_settings,
)

__all__ = ['json_schema']


_TYPES = {bool: 'boolean', int: 'integer', float: 'number', str: 'string'}
# Settings that may be written as YAML instead of as text.
_STRUCTURED = ('env_kwargs', 'env_wrappers')
# Forms of spaces of SLM-Lab that are lists of values.
_OF_LISTS = ('choice', 'grid_search')


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12)."""
    env = _settings(settings_of(EnvConfig)) | {'required': ['env_id']}
    spec = _object({
        'description': {'type': 'string'},
        'agent': _one_or_list(
            _settings(agent_settings()) | {'required': ['algorithm']},
            _settings(listed_agent_settings()) | {'required': ['algorithm']}),
        'env': _one_or_list(env, env),
        'body': _object({
            'product': {'enum': list(PRODUCTS)},
            'num': {'anyOf': [
                {'type': 'integer', 'minimum': 1},
                {'type': 'array', 'items': {'type': 'array', 'items': {'type': 'integer'},
                                            'minItems': 3, 'maxItems': 3}}]}}),
        'meta': _settings(settings_of(MetaConfig)),
        'reference': _settings(settings_of(ReferenceConfig)),
        'search': _object({
            **_settings(settings_of(SearchConfig))['properties'],
            'agent': _spaces(agent_settings()), 'env': _spaces(settings_of(EnvConfig))}),
    }) | {'required': ['agent', 'env']}
    number = {'type': 'number'}
    return {
        '$schema': 'https://json-schema.org/draft/2020-12/schema',
        'title': 'Specs of experiments of vdl_ros',
        'description': 'Written by docs/make_settings.py from the code; do not edit.',
        'type': 'object', 'additionalProperties': {'$ref': '#/$defs/spec'},
        '$defs': {
            'spec': spec,
            'choices': {'type': 'array', 'minItems': 2, 'uniqueItems': True,
                        'items': {'type': ['boolean', 'number', 'string']}},
            'number': {'anyOf': [
                {'$ref': '#/$defs/choices'},
                _object({'low': number, 'high': number, 'log': {'type': 'boolean'}})
                | {'required': ['low', 'high']},
                _object({'mean': number, 'deviation': {'type': 'number', 'exclusiveMinimum': 0}})
                | {'required': ['mean', 'deviation']}]}}}


def _one_or_list(one: dict[str, Any], of_list: dict[str, Any]) -> dict[str, Any]:
    return {'anyOf': [one, {'type': 'array', 'minItems': 1, 'items': of_list}]}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {'type': 'object', 'additionalProperties': False, 'properties': properties}


def _settings(known: dict[str, Setting]) -> dict[str, Any]:
    return _object({name: _value(each) | {'description': each.doc, 'default': each.default}
                    for name, each in known.items()})


def _value(setting: Setting) -> dict[str, Any]:
    if setting.choices:
        return {'enum': list(setting.choices)}
    if setting.name in _STRUCTURED:
        return {'type': ['string', 'array', 'object']}
    found: dict[str, Any] = {'type': _TYPES[setting.type]}
    for name in ('minimum', 'maximum'):
        if (limit := getattr(setting, name)) is not None:
            found[name] = limit
    return found


def _spaces(known: dict[str, Setting]) -> dict[str, Any]:
    """Return the schema of a part of a search: each setting, and SLM-Lab's forms of them."""
    numbers = [name for name, each in known.items() if each.type in (int, float)]
    spaces = _object({name: {'$ref': f'#/$defs/{"number" if name in numbers else "choices"}'}
                      for name in known})
    of_two = [each for each in SUFFIXES if each not in _OF_LISTS]
    return spaces | {'patternProperties': {
        f'^({"|".join(known)})__({"|".join(_OF_LISTS)})$': {'$ref': '#/$defs/choices'},
        f'^({"|".join(numbers)})__({"|".join(of_two)})$': {
            'type': 'array', 'items': {'type': 'number'}, 'minItems': 2, 'maxItems': 2}}}
