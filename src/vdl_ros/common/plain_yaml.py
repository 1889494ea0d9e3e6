"""YAML of files: bounded in size, plain values only, and each value written out once.

A file may be somebody else's. With aliases one of 1 kB stands for more values than the memory
holds, which whatever prints or walks through them would find out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.quoting import shown

#: Larger files are not of this package, bytes.
MAX_BYTES = 1 << 20
# Characters of a whole number.
_MAX_DIGITS = 100
_TAGS = {name: f'tag:yaml.org,2002:{name}'
         for name in ('null', 'bool', 'int', 'float', 'str', 'seq', 'map')}


class YamlError(ValueError):
    """What cannot be read, in one line without the name of the file.

    ``line`` counts from 1; 0: the whole file.
    """

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Refuses aliases, and tags of other values; dates are text, and << is a key."""

    yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag]
                         for tag in (*_TAGS.values(), None)}
    yaml_implicit_resolvers = {
        first: [each for each in found if each[0] in _TAGS.values()]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, f'*{event.anchor} is not allowed: the value itself', event.start_mark)
        return super().compose_node(parent, index)

    def whole_number(self, node: yaml.ScalarNode) -> int:
        # The time that a number to the base 60 takes grows with the square of its length.
        if len(node.value) > _MAX_DIGITS:
            raise yaml.constructor.ConstructorError(
                None, None, f'a number of {len(node.value)} characters is not allowed: at most '
                f'{_MAX_DIGITS}', node.start_mark)
        return self.construct_yaml_int(node)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump_yaml(value: Any) -> str:
    """Return plain values as a text that :func:`parse_yaml` reads."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False)
    return text


_Loader.add_constructor(_TAGS['int'], _Loader.whole_number)


def parse_yaml(text: str | bytes, look: Callable[[yaml.Node], None] = lambda root: None) -> Any:
    """Return the value of a text, None without one; YamlError: it is not such YAML.

    ``look`` is called with the nodes, which have the lines of values.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        look(root)
        return loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(f'not YAML: {shown(str(error.problem), 200)}',
                        mark.line + 1 if mark else 1) from None
    # Of values that contradict their tags, and of deep nesting.
    except Exception as error:
        reason = ' '.join(str(error).split()) or type(error).__name__
        raise YamlError(f'not YAML: {shown(reason, 200)}', 1) from None


def read_yaml(
    path: Path, max_bytes: int = MAX_BYTES, look: Callable[[yaml.Node], None] = lambda root: None,
) -> Any:
    """Return the value in a file; YamlError as of :func:`parse_yaml`, or it cannot be read."""
    if path.exists() and not path.is_file():
        # To open it may block for ever.
        raise YamlError('cannot be read: not a file')
    try:
        with path.open('rb') as stream:
            data = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:  # of a path with a null character
        raise YamlError(f'cannot be read: {getattr(error, "strerror", None) or error}') from None
    if len(data) > max_bytes:
        raise YamlError(f'larger than {max_bytes} bytes')
    return parse_yaml(data, look)
