"""Nodes under the stand-in: names, parameters and remappings as a node sees them."""

from __future__ import annotations

import json
import signal

import pytest

# Writes what it was told, without ROS.
COMMAND_ECHO = """
import json, sys, yaml
told = {'files': [], 'params': {}, 'rules': [], 'plain': []}
arguments = iter(sys.argv[1:])
for argument in arguments:
    if argument == '--params-file':
        with open(next(arguments)) as file:
            told['files'].append(yaml.safe_load(file))
    elif argument == '-p':
        name, _, value = next(arguments).partition(':=')
        told['params'][name] = yaml.safe_load(value)
    elif argument == '-r':
        told['rules'].append(next(arguments))
    elif argument != '--ros-args':
        told['plain'].append(argument)
print(json.dumps(told))
"""
# Writes what it is, as a ROS node.
SEEN = """
import json
import rclpy
from rclpy.node import Node
rclpy.init()
node = Node('unnamed', allow_undeclared_parameters=True,
            automatically_declare_parameters_from_overrides=True)
seen = {
    name: [value.type_.name,
           value.value if isinstance(value.value, (str, int, float)) else list(value.value)]
    for name, value in node._parameters.items()
    if not name.startswith(('qos_overrides', 'start_type', 'use_sim_time'))
}
print(json.dumps({'name': node.get_fully_qualified_name(), 'parameters': seen,
                  'topic': node.resolve_topic_name('chatter')}))
node.destroy_node()
rclpy.shutdown()
"""


def said(command, process):
    """Give what a node wrote, which is a line of JSON."""
    prefix = f'[{process}] '
    lines = [line for line in command.lines if line.startswith(prefix)]
    assert len(lines) == 1, command.output
    return json.loads(lines[0].removeprefix(prefix))


@pytest.fixture
def told(workspace):
    """Give a function that launches nodes and gives what each was told."""
    workspace.executable('told', COMMAND_ECHO)

    def launch(entities, *arguments):
        command = workspace.launch(
            'def node(**options):\n'
            "    return Node(package='standin_test_package', executable='told', output='screen',\n"
            '                **options)\n'
            f'return LaunchDescription({entities})',
            *arguments,
        )
        names = [line.split(']')[0][1:] for line in command.lines if line.startswith('[told-')]
        return command, [said(command, name) for name in sorted(names)]

    return launch


def test_names_and_namespaces(told):
    _, nodes = told(
        """[
        node(),
        node(name='n', namespace='rel/ns'),
        PushRosNamespace('robot'),
        node(name='n'),
        node(namespace='part'),
        node(namespace='/abs'),
        GroupAction([PushRosNamespace('deep'), node()]),
        node(),
    ]"""
    )
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
def test_invalid_names_are_refused(told, option):
    command, nodes = told(f'[node({option})]')
    assert command.finish() == 1
    assert 'Invalid n' in command.output
    assert nodes == []


def test_arguments_and_remappings(told):
    _, (node, after) = told(
        """[
        GroupAction([
            SetRemap('x', 'y'),
            node(arguments=['--plain', Config('a')], ros_arguments=['--log-level', 'warn'],
                 remappings=[('from', ['to_', Config('a')])]),
        ]),
        node(),
    ]""",
        'a:=A',
    )
    assert node['plain'] == ['--plain', 'A', '--log-level', 'warn']
    assert node['rules'] == ['x:=y', 'from:=to_A']
    assert after['rules'] == []


def test_parameters_are_for_the_node_if_its_full_name_is_known(told):
    _, nodes = told(
        """[
        node(parameters=[{'a': 1}]),
        node(name='n', parameters=[{'a': 1}]),
        node(name='n', namespace='ns', parameters=[{'a': 1}, {'b': 2}]),
    ]"""
    )
    values = {'ros__parameters': {'a': 1}}
    assert [node['files'] for node in nodes] == [
        [{'/**': values}],
        [{'/**': values}],
        [{'/ns/n': values}, {'/ns/n': {'ros__parameters': {'b': 2}}}],
    ]


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        ("Config('x')", 2.5),
        ("ParameterValue(Config('x'), value_type=str)", '2.5'),
        ("ParameterValue(Config('x'), value_type=float)", 2.5),
        ("ParameterValue(['[', Config('x'), ', 1.5]'], value_type=list[float])", [2.5, 1.5]),
        ("['v', Config('x')]", 'v2.5'),
        ("[[Config('x')], ['1.5']]", [2.5, 1.5]),
        ("TextSubstitution(text='')", ''),
        ("TextSubstitution(text='[true, false]')", [True, False]),
        ("'2.5'", '2.5'),
        ("''", ''),
        ("'a: b\\n'", 'a: b\n'),
        ('[1, 2.5]', [1.0, 2.5]),
        ("('1', 'true')", ['1', 'true']),
        ("{'inner': 3}", None),
    ],
)
def test_parameter_values(told, value, expected):
    command, nodes = told(f"[node(parameters=[{{'p': {value}, 'q': 1}}])]", 'x:=2.5')
    assert command.finish() == 0, command.output
    (file,) = nodes[0]['files']
    wanted = {'p.inner': 3} if expected is None else {'p': expected}
    assert file == {'/**': {'ros__parameters': {**wanted, 'q': 1}}}


@pytest.mark.parametrize(
    ('value', 'message'),
    [
        ("TextSubstitution(text='{a: b}')", 'Allowed value types are bytes, bool, int'),
        ("TextSubstitution(text='a: b: c')", 'Unable to parse the value of parameter p as yaml'),
        ("[1, 'a']", 'Got inconsistent input for "p"'),
        ('[]', 'Got inconsistent input for "p"'),
        ('object()', 'Unexpected type for parameter value'),
        ("ParameterValue(Config('x'), value_type=int)", "invalid literal for int(): '2.5'"),
    ],
)
def test_parameter_values_that_are_none(told, value, message):
    command, nodes = told(f"[node(parameters=[{{'p': {value}}}])]", 'x:=2.5')
    assert command.finish() == 1
    assert message in command.output.replace(' with base 10', '')
    assert nodes == []


def test_parameter_files(told, workspace):
    (workspace.share / 'p.yaml').write_text('/**: {ros__parameters: {a: 1}}\n')
    (workspace.share / 's.yaml').write_text(
        """
        /**:
          ros__parameters:
            plain: $(var x)
            quoted: $(var nope 'a b')
            nested: $(if $(eval "3 > 2") yes no)
            share: $(find-pkg-share standin_test_package)/x
            price: 5 \\$(not this)
        """
    )
    command, (node,) = told(
        """[
        node(parameters=[
            [FindPackageShare('standin_test_package'), '/p.yaml'],
            ParameterFile([FindPackageShare('standin_test_package'), '/s.yaml'],
                          allow_substs=True),
            '/no/such/file.yaml',
            Parameter('single', Config('x')),
            Parameter('text', '5'),
        ]),
    ]""",
        'x:=2.5',
    )
    assert node['files'] == [
        {'/**': {'ros__parameters': {'a': 1}}},
        {
            '/**': {
                'ros__parameters': {
                    'plain': 2.5,
                    'quoted': 'a b',
                    'nested': True,
                    'share': f'{workspace.share}/x',
                    'price': '5 $(not this)',
                }
            }
        },
    ]
    assert node['params'] == {'single': 2.5, 'text': '5'}
    assert 'Parameter file path is not a file: /no/such/file.yaml' in command.output


def test_temporary_parameter_files_are_removed(told, workspace):
    temporary = workspace.directory / 'temporary'
    temporary.mkdir()
    workspace.environment['TMPDIR'] = str(temporary)
    _, (node,) = told("[node(parameters=[{'a': 1}])]")
    assert node['files']
    assert list(temporary.iterdir()) == []


def test_an_unknown_substitution_in_a_parameter_file_is_named(told, workspace):
    (workspace.share / 's.yaml').write_text('/**: {ros__parameters: {a: $(magic x)}}\n')
    command, _ = told(
        "[node(parameters=[ParameterFile([FindPackageShare('standin_test_package'), '/s.yaml'], "
        'allow_substs=True)])]'
    )
    assert command.finish() == 1
    assert '$(magic ...) is not part of this stand-in' in command.output


def test_parameters_for_all_nodes_of_a_scope(told, workspace):
    (workspace.share / 'p.yaml').write_text('/**: {ros__parameters: {a: 1}}\n')
    command, (node, after) = told(
        """[
        SetParameter('everywhere', True),
        GroupAction([
            SetParameter(name='list', value=[1, 2]),
            SetParameter('text', '5'),
            SetParametersFromFile([FindPackageShare('standin_test_package'), '/p.yaml']),
            node(parameters=[{'own': 1}]),
            LogInfo(msg=[SetForAll('text'), SetForAll('none', default=7)]),
        ]),
        node(),
    ]"""
    )
    assert node['params'] == {'everywhere': True, 'list': [1, 2], 'text': '5'}
    assert [list(file['/**']['ros__parameters']) for file in node['files']] == [['a'], ['own']]
    assert after['params'] == {'everywhere': True}
    assert workspace.user_messages(command) == ['57']


@pytest.mark.parametrize(
    ('node', 'message'),
    [
        (
            "Node(package='standin_test_package', executable='missing')",
            "executable 'missing' not found on the libexec directory",
        ),
        ("Node(package='standin_missing', executable='x')", "package 'standin_missing' not found"),
    ],
)
def test_executables_that_are_missing(told, node, message):
    command, _ = told(f'[{node}]')
    assert command.finish() == 1
    assert message in command.output


def test_nodes_of_the_same_name_are_warned_of(told):
    command, _ = told("[node(name='n', namespace='/'), node(name='n', namespace='/')]")
    assert (
        '[WARNING] [told-2]: there are now at least 2 nodes with the name /n created within this '
        'launch context'
    ) in command.lines


def test_a_real_node_sees_it_all(workspace):
    workspace.executable('seen', SEEN)
    command = workspace.launch(
        """[
        PushRosNamespace('robot'),
        SetParameter('for_all', 1.5),
        Node(package='standin_test_package', executable='seen', exec_name='one', name='named',
             namespace='arm', output='screen', remappings=[('chatter', '/elsewhere')],
             parameters=[{
                'int': 1, 'float': 2.0, 'bool': True, 'text': 'x', 'digits': '12', 'empty': '',
                'ints': [1, 2], 'floats': [1, 2.5], 'bools': [True, False],
                'texts': ['a', '1', 'true'], 'small': 1e-7, 'lines': 'a\\nb: c\\n',
                'deep': {'er': {'value': 3}}, 'given': Config('given'),
             }]),
        Node(package='standin_test_package', executable='seen', exec_name='two', output='screen',
             parameters=[{'int': 1}]),
    ]""",
        'given:=[a, b]',
    )
    one = said(command, 'one-1')
    assert one['name'] == '/robot/arm/named'
    assert one['topic'] == '/elsewhere'
    assert one['parameters'] == {
        'for_all': ['DOUBLE', 1.5],
        'int': ['INTEGER', 1],
        'float': ['DOUBLE', 2.0],
        'bool': ['BOOL', True],
        'text': ['STRING', 'x'],
        'digits': ['STRING', '12'],
        'empty': ['STRING', ''],
        'ints': ['INTEGER_ARRAY', [1, 2]],
        'floats': ['DOUBLE_ARRAY', [1.0, 2.5]],
        'bools': ['BOOL_ARRAY', [True, False]],
        'texts': ['STRING_ARRAY', ['a', '1', 'true']],
        'small': ['DOUBLE', 1e-07],
        'lines': ['STRING', 'a\nb: c\n'],
        'deep.er.value': ['INTEGER', 3],
        'given': ['STRING_ARRAY', ['a', 'b']],
    }
    two = said(command, 'two-2')
    assert two['name'] == '/robot/unnamed'
    assert two['topic'] == '/robot/chatter'
    assert two['parameters'] == {'for_all': ['DOUBLE', 1.5], 'int': ['INTEGER', 1]}
    assert command.finish() == 0


def test_a_lifecycle_node_is_followed_and_led(workspace):
    workspace.executable(
        'lifecycle',
        """
        import rclpy
        from rclpy.executors import ExternalShutdownException
        from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn

        class Recorder(LifecycleNode):
            def on_configure(self, state):
                return TransitionCallbackReturn.SUCCESS

        rclpy.init()
        try:
            rclpy.spin(Recorder('unnamed'))
        except (KeyboardInterrupt, ExternalShutdownException):
            pass
        """,
    )
    command = workspace.start_launch(
        """
        from launch_ros.event_handlers import OnStateTransition
        from launch_ros.events.lifecycle import ChangeState
        from lifecycle_msgs.msg import Transition

        node = LifecycleNode(package='standin_test_package', executable='lifecycle', name='led',
                             namespace='ns', output='screen')

        def change(transition):
            return EmitEvent(event=ChangeState(lifecycle_node_matcher=matches_action(node),
                                               transition_id=transition))

        return LaunchDescription([
            RegisterEventHandler(OnStateTransition(
                target_lifecycle_node=node, start_state='configuring', goal_state='inactive',
                entities=[LogInfo(msg='configured'), change(Transition.TRANSITION_ACTIVATE)])),
            RegisterEventHandler(OnStateTransition(
                target_lifecycle_node=node, goal_state='active',
                entities=[LogInfo(msg='active')])),
            node,
            change(Transition.TRANSITION_CONFIGURE),
        ])
        """
    )
    command.wait_for('[launch.user]: active')
    command.send(signal.SIGINT)
    assert command.finish() == 0, command.output
    assert workspace.user_messages(command) == ['configured', 'active']
