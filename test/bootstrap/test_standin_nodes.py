"""Nodes under the stand-in: names, parameters and remappings, as a node receives them."""

from __future__ import annotations

import json

import pytest

# Prints its arguments, without ROS.
ECHO = """
import json, sys, yaml
received = {'files': [], 'rules': [], 'plain': []}
arguments = iter(sys.argv[1:])
for argument in arguments:
    if argument == '--params-file':
        with open(next(arguments)) as file:
            received['files'].append(yaml.safe_load(file))
    elif argument == '-r':
        received['rules'].append(next(arguments))
    elif argument != '--ros-args':
        received['plain'].append(argument)
print(json.dumps(received))
"""
# Prints its name, parameters and topic, as a ROS node.
ROS_NODE = """
import json
import rclpy
from rclpy.node import Node
rclpy.init()
node = Node('unnamed', allow_undeclared_parameters=True,
            automatically_declare_parameters_from_overrides=True)
parameters = {
    name: [value.type_.name,
           value.value if isinstance(value.value, (str, int, float)) else list(value.value)]
    for name, value in node._parameters.items()
    if not name.startswith(('qos_overrides', 'start_type', 'use_sim_time'))
}
print(json.dumps({'name': node.get_fully_qualified_name(), 'parameters': parameters,
                  'topic': node.resolve_topic_name('chatter')}))
node.destroy_node()
rclpy.shutdown()
"""


def printed(command, process):
    """Return what a node printed, which is a line of JSON."""
    prefix = f'[{process}] '
    lines = [line for line in command.lines if line.startswith(prefix)]
    assert len(lines) == 1, command.output
    return json.loads(lines[0].removeprefix(prefix))


@pytest.fixture
def echo(workspace):
    """Return a function that launches nodes and returns what each received."""
    workspace.executable('echo', ECHO)

    def launch(entities, *arguments):
        command = workspace.launch(
            'def node(**options):\n'
            "    return Node(package='standin_test_package', executable='echo', output='screen',\n"
            '                **options)\n'
            f'return LaunchDescription({entities})', *arguments)
        names = [line.split(']')[0][1:] for line in command.lines if line.startswith('[echo-')]
        return command, [printed(command, name) for name in sorted(names)]

    return launch


def test_names_and_namespaces(echo):
    _, nodes = echo("""[
        node(),
        node(name='n', namespace='rel/ns'),
        PushRosNamespace('robot'),
        node(name='n'),
        node(namespace='part'),
        node(namespace='/abs'),
        GroupAction([PushRosNamespace('deep'), node()]),
        node(),
    ]""")
    assert [node['rules'] for node in nodes] == [
        [],
        ['__node:=n', '__ns:=/rel/ns'],
        ['__node:=n', '__ns:=/robot'],
        ['__ns:=/robot/part'],
        ['__ns:=/abs'],
        ['__ns:=/robot/deep'],
        ['__ns:=/robot'],
    ]


@pytest.mark.parametrize('option', ["name='bad name'", "name='9'", "namespace='a//b'"])
def test_invalid_names_are_refused(echo, option):
    command, nodes = echo(f'[node({option})]')
    assert command.finish() == 1
    assert 'Invalid n' in command.output
    assert nodes == []


def test_arguments_remappings_and_parameter_files(echo, workspace):
    (workspace.share / 'p.yaml').write_text('/**: {ros__parameters: {a: 1}}\n')
    temporary = workspace.directory / 'temporary'
    temporary.mkdir()
    workspace.environment['TMPDIR'] = str(temporary)
    command, nodes = echo("""[
        node(arguments=['--plain', Config('a')], remappings=[('from', ['to_', Config('a')])]),
        node(parameters=[{'a': 1}, '/no/such/file.yaml']),
        node(name='n', parameters=[[FindPackageShare('standin_test_package'), '/p.yaml']]),
        node(name='n', namespace='ns', parameters=[{'a': 1}, {'b': 2}]),
    ]""", 'a:=A')
    assert nodes[0] == {'plain': ['--plain', 'A'], 'rules': ['from:=to_A'], 'files': []}
    values = {'ros__parameters': {'a': 1}}
    assert [node['files'] for node in nodes[1:]] == [
        [{'/**': values}],
        [{'/**': values}],
        [{'/ns/n': values}, {'/ns/n': {'ros__parameters': {'b': 2}}}],
    ]
    assert 'Parameter file path is not a file: /no/such/file.yaml' in command.output
    assert list(temporary.iterdir()) == [], 'temporary parameter files are removed'


@pytest.mark.parametrize(('value', 'message'), [
    ("TextSubstitution(text='{a: b}')", 'is neither bool, int, float, text nor a list'),
    ("TextSubstitution(text='a: b: c')", "parameter value 'a: b: c' is not YAML"),
    ("[1, 'a']", 'items must be of one type'),
    ('[]', 'items must be of one type'),
    ("{'inner': 3}", 'is neither bool, int, float, text nor a list'),
    ('object()', 'is neither bool, int, float, text nor a list'),
    ("ParameterValue(Config('x'), value_type=int)", "invalid literal for int() with base 10: '2"),
    ("ParameterValue(1, value_type=str)", 'parameter value 1 is no str'),
])
def test_wrong_parameter_values_are_refused(echo, value, message):
    command, nodes = echo(f"[node(parameters=[{{'p': {value}}}])]", 'x:=2.5')
    assert command.finish() == 1
    assert message in command.output
    assert nodes == []


@pytest.mark.parametrize(('package', 'message'), [
    ('standin_test_package', "executable 'missing' not found on the libexec directory"),
    ('standin_missing', "package 'standin_missing' not found"),
])
def test_missing_executables_are_named(echo, package, message):
    command, _ = echo(f"[Node(package='{package}', executable='missing')]")
    assert command.finish() == 1
    assert message in command.output


# Parameters as launch files give them, and as rclpy reads them.
VALUES = {
    '1': ['INTEGER', 1],
    '2.0': ['DOUBLE', 2.0],
    '1e-7': ['DOUBLE', 1e-07],
    'True': ['BOOL', True],
    "'x'": ['STRING', 'x'],
    "'12'": ['STRING', '12'],
    "''": ['STRING', ''],
    "'a\\nb: c\\n'": ['STRING', 'a\nb: c\n'],
    '[1, 2]': ['INTEGER_ARRAY', [1, 2]],
    '[1, 2.5]': ['DOUBLE_ARRAY', [1.0, 2.5]],
    '[True, False]': ['BOOL_ARRAY', [True, False]],
    "('a', '1', 'true')": ['STRING_ARRAY', ['a', '1', 'true']],
    "Config('x')": ['DOUBLE', 2.5],
    "['v', Config('x')]": ['STRING', 'v2.5'],
    "TextSubstitution(text='')": ['STRING', ''],
    "TextSubstitution(text='[a, b]')": ['STRING_ARRAY', ['a', 'b']],
    "ParameterValue(Config('x'), value_type=str)": ['STRING', '2.5'],
    "ParameterValue(Config('x'), value_type=float)": ['DOUBLE', 2.5],
    "ParameterValue('2.5', value_type=str)": ['STRING', '2.5'],
    "ParameterValue(['tr', TextSubstitution(text='ue')], value_type=bool)": ['BOOL', True],
}


def test_a_ros_node_receives_name_parameters_and_remappings(workspace):
    workspace.executable('ros_node', ROS_NODE)
    pairs = ', '.join(f"'p{number}': {value}" for number, value in enumerate(VALUES))
    command = workspace.launch(f"""[
        PushRosNamespace('robot'),
        Node(package='standin_test_package', executable='ros_node', exec_name='one', name='named',
             namespace='arm', output='screen', remappings=[('chatter', '/elsewhere')],
             parameters=[{{{pairs}}}]),
        Node(package='standin_test_package', executable='ros_node', exec_name='two',
             output='screen', parameters=[{{'int': 1}}]),
    ]""", 'x:=2.5')
    assert printed(command, 'one-1') == {
        'name': '/robot/arm/named', 'topic': '/elsewhere',
        'parameters': {f'p{number}': value for number, value in enumerate(VALUES.values())}}
    assert printed(command, 'two-2') == {
        'name': '/robot/unnamed', 'topic': '/robot/chatter', 'parameters': {'int': ['INTEGER', 1]}}
    assert command.finish() == 0
