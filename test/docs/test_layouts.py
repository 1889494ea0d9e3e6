"""The layouts for Foxglove and PlotJuggler name topics and fields that exist."""

import importlib
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from vdl_ros.arm.joints import JOINTS

ROOT = Path(__file__).resolve().parents[2]
# Keys of Foxglove's panels whose values are topics, or paths that begin with one.
PATH_KEYS = ('value', 'topic', 'imageTopic', 'calibrationTopic', 'topicToRender')
FOXGLOVE_PATH = re.compile(r'(/[\w/]+)(?:\{(\w+)=="scalar_([\w/]+)"\})?((?:\.\w+|\[\d+\])*)')


def topic_types():
    """Return the type of each topic by its absolute name, from the table in docs/nodes.md."""
    types = {}
    page = (ROOT / 'docs' / 'nodes.md').read_text()
    for topics, names in re.findall(r'^\| (`[^|]+) \| (`[^|]+) \|', page, re.MULTILINE):
        package = ''
        for topic, name in zip(re.findall('`(.+?)`', topics), re.findall('`(.+?)`', names),
                               strict=False):
            package = name.partition('/')[0] if '/' in name else package
            types['/' + topic.lstrip('/')] = f'{package}/{name.rpartition("/")[2]}'
    # Two topics of one type.
    types['/tf_static'] = types['/tf']
    return types


TYPES = topic_types()


def follow(topic, fields):
    """Fail unless the topic exists and its messages have the field, as 'statistics[0].data'."""
    assert topic in TYPES, topic
    name = TYPES[topic]
    for field, _, index in re.findall(r'(\w+)(\[(\d+)\])?', fields):
        package, message = name.split('/')
        known = getattr(importlib.import_module(f'{package}.msg'), message)
        known = known.get_fields_and_field_types()
        assert field in known, f'{topic}: {name} has no {field}: {", ".join(known)}'
        name = re.sub(r'sequence<(.+)>|\[\d+\]', r'\1', known[field])
        assert (name != known[field]) == bool(index), f'{topic}: {field} is {known[field]}'


def nested(value):
    """Yield every dictionary in a value read from JSON."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list)):
            yield from nested(each)


def test_layouts_of_foxglove_name_what_exists():
    source = ''.join(each.read_text() for each in (ROOT / 'src/vdl_ros/rl').rglob('*.py'))
    layouts = list((ROOT / 'config' / 'foxglove').glob('*.json'))
    assert len(layouts) > 1
    for read in (json.loads(path.read_text()) for path in layouts):
        panels = read['configById']
        assert all(f'"{name}"' in json.dumps(read['layout']) for name in panels)
        paths = [each[key] for each in nested(panels) for key in PATH_KEYS if key in each]
        paths += [topic for each in panels.values() for topic in each.get('topics', ())]
        assert len(paths) > 5
        for text in paths:
            topic, filtered, scalar, fields = FOXGLOVE_PATH.fullmatch(text).groups()
            follow(topic, fields)
            if filtered:
                follow(topic, filtered)
                assert f"'{scalar}'" in source, scalar


def test_layouts_of_plotjuggler_name_what_exists():
    layouts = list((ROOT / 'config' / 'plotjuggler').glob('*.xml'))
    assert len(layouts) > 1
    for path in layouts:
        names = [curve.get('name') for curve in ElementTree.parse(path).iter('curve')]
        assert len(names) > 3, path
        for name in names:
            topic = max((each for each in TYPES if name.startswith(f'{each}/')), key=len)
            field = name.removeprefix(f'{topic}/')
            if TYPES[topic] == 'sensor_msgs/JointState':
                # It makes a curve of each joint: TOPIC/JOINT/position.
                joint, field = field.split('/')
                assert joint in JOINTS, joint
                field += '[0]'
            follow(topic, field)
