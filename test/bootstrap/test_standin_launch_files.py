"""Launch files under the stand-in: arguments, includes, scopes, substitutions and errors."""

INNER = """[
    DeclareLaunchArgument('needed', description='what is needed'),
    DeclareLaunchArgument('other', default_value='default'),
    LogInfo(msg=['needed=', Config('needed'), ' other=', Config('other')]),
]"""
INCLUDED = "[FindPackageShare('standin_test_package'), 'launch', 'inner.launch.py']"


def test_defaults_hold_and_arguments_missing_not_allowed_or_malformed_are_named(workspace):
    body = """[
        DeclareLaunchArgument('a', default_value='A'),
        DeclareLaunchArgument('b', default_value=['x', Config('a')]),
        LogInfo(msg=[Config('a'), ' ', Config('b'), ' ', Config('c', default=False)]),
    ]"""
    assert workspace.launch(body).messages == ['A xA False']
    given = workspace.launch(body, 'a:=1', 'a:=2:=3')
    assert (given.status, given.messages) == (0, ['2:=3 x2:=3 False'])
    command = workspace.launch(
        "[DeclareLaunchArgument('must', description='why'), LogInfo(msg='not reached')]")
    assert command.status == 1
    assert "missing required argument 'must' (description: 'why')" in command.output
    assert command.messages == []
    body = "[DeclareLaunchArgument('a', choices=['x', 'y'], default_value='x')]"
    assert workspace.launch(body, 'a:=y').status == 0
    command = workspace.launch(body, 'a:=z')
    assert command.status == 1
    assert 'provided value "z" is not valid. Valid options are: [\'x\', \'y\']' in command.output
    for argument in ('novalue', 'a:=', ':=b'):
        command = workspace.launch('[]', argument)
        assert (command.status, command.output) == (1, (
            f"malformed launch argument '{argument}', expected format '<name>:=<value>'"))


def test_show_args_lists_arguments_of_groups_and_includes(workspace):
    workspace.launch_file(INNER, 'inner.launch.py', installed=True)
    command = workspace.launch(f"""[
        DeclareLaunchArgument('sum', default_value=[Config('plain'), '/']),
        GroupAction([DeclareLaunchArgument('one_of', choices=['1', '2'], default_value='1')]),
        DeclareLaunchArgument('both', choices=['1'], description='Text'),
        IncludeLaunchDescription(PathJoinSubstitution({INCLUDED}),
                                 launch_arguments={{'needed': '1'}}.items()),
        IncludeLaunchDescription(Config('known only when the launch runs')),
    ]""", '--show-args')
    assert command.status == 0
    assert [line.strip() for line in command.lines if line] == [
        "Arguments (pass arguments as '<name>:=<value>'):",
        "'sum':", 'no description given', "(default: LaunchConfig('plain') + '/')",
        "'one_of':", "One of: ['1', '2']", "(default: '1')",
        "'both':", "Text. Valid choices are: ['1']", "'needed':", 'what is needed',
        "'other':", 'no description given', "(default: 'default')"]
    assert "    'both':" in command.lines, 'the completion in bash relies on four spaces'
    assert workspace.launch('[]', '-s').lines[-1] == '  No arguments.'


def test_an_include_sets_its_arguments_and_needs_the_required_ones(workspace):
    workspace.launch_file(INNER, 'inner.launch.py', installed=True)
    command = workspace.launch(f"""
        source = PythonLaunchDescriptionSource(PathJoinSubstitution({INCLUDED}))
        return LaunchDescription([
            SetLaunchConfiguration('x', 'X'),
            IncludeLaunchDescription(
                source, launch_arguments={{'needed': [Config('x'), '1']}}.items()),
            LogInfo(msg=['after ', Config('needed')]),
        ])
    """)
    assert command.messages == ['needed=X1 other=default', 'after X1']
    command = workspace.launch(f"""[
        SetLaunchConfiguration('needed', 'this is not an argument'),
        IncludeLaunchDescription(PathJoinSubstitution({INCLUDED}),
                                 launch_arguments={{'other': ''}}.items()),
    ]""")
    assert command.status == 1
    assert ("Included launch description missing required argument 'needed' "
            "(description: 'what is needed'), given: [other]") in command.output


def test_groups_are_scopes_and_opaque_functions_get_the_context(workspace):
    command = workspace.launch("""[
        SetLaunchConfiguration('a', '1'),
        GroupAction([
            SetLaunchConfiguration('a', '2'),
            SetEnvironmentVariable('STANDIN_X', 'set'),
            LogInfo(msg=[Config('a'), EnvironmentVariable('STANDIN_X')]),
        ]),
        LogInfo(msg=[Config('a'), EnvironmentVariable('STANDIN_X', default_value='unset')]),
        LogInfo(msg=[Config('a'), PathJoinSubstitution(['a', Config('b', default='c'), 'd'])]),
    ]""")
    assert command.messages == ['2set', '1unset', '1a/c/d']
    command = workspace.launch("""
        def now(context):
            return [LogInfo(msg=[Config('a'), str(context.is_shutdown)])]

        return LaunchDescription([SetLaunchConfiguration('a', 'A'), OpaqueFunction(function=now)])
    """)
    assert (command.status, command.messages) == (0, ['AFalse'])


def test_a_failing_substitution_ends_the_launch(workspace):
    command = workspace.launch("[LogInfo(msg=Config('nope')), LogInfo(msg='not reached')]")
    assert (command.status, command.messages) == (1, [])
    assert ("[ERROR] [launch]: Caught exception in launch (see debug for traceback): launch "
            "configuration 'nope' does not exist") in command.output


def test_missing_names_and_keywords_are_named_in_one_line(workspace):
    for body, missing in (
            ('from launch.actions import Foo', "cannot import name 'Foo' from 'launch.actions'"),
            ("LogInfo(msg='', condition=None)", "unexpected keyword argument 'condition'"),
            ('TimerAction(period=1.0, actions=[])', 'cancel_on_shutdown=False'),
            ('ParameterValue([1], value_type=list[int])', 'value_type=list[int]')):
        command = workspace.launch(f'{body}\nreturn LaunchDescription([])')
        lines = [line for line in command.lines if 'is not part of this stand-in' in line]
        assert (command.status, len(lines)) == (1, 1), body
        assert missing in lines[0]
        assert 'source a ROS 2 distribution' in lines[0]
        assert 'Traceback' not in command.output
    # A library of somebody else.
    command = workspace.launch("raise ImportError('gymnasium 0.29.0 is too old')")
    assert command.output.splitlines()[-1].endswith('ImportError: gymnasium 0.29.0 is too old')


def test_errors_of_a_launch_file_name_the_file(workspace):
    path = workspace.directory / 'empty.launch.py'
    path.touch()
    for options in ([], ['--show-args']):
        command = workspace.run('launch', str(path), *options)
        assert command.status == 1, options
        assert f'{path}: ' in command.lines[-1]
        assert 'there is no function generate_launch_description()' in command.lines[-1]
