"""Nodes under the stand-in: names, parameters and remappings, as a node receives them."""

import tempfile

import rclpy
from rclpy.node import Node


def test_names_and_namespaces(workspace):
    programs = workspace.launch("""[
        node(),
        node(name='n', namespace='rel/ns'),
        PushROSNamespace('robot'),
        node(name='n'),
        node(namespace='part'),
        node(namespace='/abs'),
        GroupAction([PushROSNamespace('deep'), node()]),
        node(),
    ]""").programs
    assert [each.rules for each in programs] == [
        [], ['__node:=n', '__ns:=/rel/ns'], ['__node:=n', '__ns:=/robot'], ['__ns:=/robot/part'],
        ['__ns:=/abs'], ['__ns:=/robot/deep'], ['__ns:=/robot']]


def test_arguments_remappings_and_parameter_files(workspace, monkeypatch):
    (workspace.share / 'p.yaml').write_text('/**: {ros__parameters: {a: 1}}\n')
    temporary = workspace.directory / 'temporary'
    temporary.mkdir()
    monkeypatch.setattr(tempfile, 'tempdir', str(temporary))
    command = workspace.launch("""[
        node(arguments=['--plain', Config('a')], remappings=[('from', ['to_', Config('a')])]),
        node(parameters=[{'a': 1}, '/no/such/file.yaml']),
        node(name='n', parameters=[[FindPackageShare('standin_test_package'), '/p.yaml']]),
        node(name='n', namespace='ns', parameters=[{'a': 1}, {'b': 2}]),
    ]""", 'a:=A')
    assert command.programs[0].command == [
        str(workspace.libexec / 'program'), '--plain', 'A', '--ros-args', '-r', 'from:=to_A']
    values = {'ros__parameters': {'a': 1}}
    assert [each.files for each in command.programs[1:]] == [
        [{'/**': values}],
        [{'/**': values}],
        [{'/ns/n': values}, {'/ns/n': {'ros__parameters': {'b': 2}}}],
    ]
    assert 'Parameter file path is not a file: /no/such/file.yaml' in command.output
    assert command.programs[1].command[-1].startswith(str(temporary))
    assert list(temporary.iterdir()) == [], 'temporary parameter files are removed'


def test_wrong_names_executables_and_parameters_are_refused(workspace):
    for options, message in (
            ("name='bad name'", 'Invalid node name'),
            ("namespace='a//b'", 'Invalid namespace'),
            ("parameters=[{'p': TextSubstitution(text='a: b: c')}]", "'a: b: c' is not YAML"),
            ("parameters=[{'p': [1, 'a']}]", 'is neither bool, int, float'),
            ("parameters=[{'p': ParameterValue(Config('x'), value_type=int)}]",
             "invalid literal for int() with base 10: '2"),
    ):
        command = workspace.launch(f'[node({options})]', 'x:=2.5')
        assert (command.status, command.programs) == (1, []), options
        assert message in command.output, options
    command = workspace.launch("[Node(package='standin_test_package', executable='missing')]")
    assert command.status == 1
    assert "executable 'missing' not found on the libexec directory" in command.output


# Parameters as launch files give them, and as rclpy reads them.
VALUES = {
    '1': ['INTEGER', 1],
    'True': ['BOOL', True],
    "'12'": ['STRING', '12'],
    "'a\\nb: c\\n'": ['STRING', 'a\nb: c\n'],
    '[1, 2.5]': ['DOUBLE_ARRAY', [1.0, 2.5]],
    "('a', '1', 'true')": ['STRING_ARRAY', ['a', '1', 'true']],
    "Config('x')": ['DOUBLE', 2.5],
    "['v', Config('x')]": ['STRING', 'v2.5'],
    "TextSubstitution(text='[a, b]')": ['STRING_ARRAY', ['a', 'b']],
    "ParameterValue(Config('x'), value_type=str)": ['STRING', '2.5'],
    "ParameterValue(['tr', TextSubstitution(text='ue')], value_type=bool)": ['BOOL', True],
}


def as_ros_reads(program):
    """Return name, topic and parameters of a node that gets the arguments of a program."""
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node('unnamed', context=context, cli_args=program.command[1:],
                use_global_arguments=False, allow_undeclared_parameters=True,
                automatically_declare_parameters_from_overrides=True)
    values = {
        name: [each.type_.name,
               each.value if isinstance(each.value, (str, int, float)) else list(each.value)]
        for name, each in node._parameters.items()
        if not name.startswith(('qos_overrides', 'start_type', 'use_sim_time'))}
    found = node.get_fully_qualified_name(), node.resolve_topic_name('chatter'), values
    node.destroy_node()
    rclpy.shutdown(context=context)
    return found


def test_a_ros_node_receives_name_parameters_and_remappings(workspace):
    found = []
    workspace.on_start = lambda program: found.append(as_ros_reads(program))
    pairs = ', '.join(f"'p{number}': {value}" for number, value in enumerate(VALUES))
    command = workspace.launch(f"""[
        PushROSNamespace('robot'),
        node(name='named', namespace='arm', remappings=[('chatter', '/elsewhere')],
             parameters=[{{{pairs}}}]),
        node(parameters=[{{'int': 1}}]),
    ]""", 'x:=2.5')
    assert command.status == 0, command.output
    assert found == [
        ('/robot/arm/named', '/elsewhere',
         {f'p{number}': value for number, value in enumerate(VALUES.values())}),
        ('/robot/unnamed', '/robot/chatter', {'int': ['INTEGER', 1]})]
