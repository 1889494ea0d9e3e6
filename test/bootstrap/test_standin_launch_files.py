"""Launch files under the stand-in: arguments, includes, scopes, conditions, substitutions."""

from __future__ import annotations

import pytest

INNER = """[
    DeclareLaunchArgument('needed', description='what is needed'),
    DeclareLaunchArgument('other', default_value='default'),
    LogInfo(msg=['needed=', Config('needed'), ' other=', Config('other')]),
    LogInfo(msg=['in ', ThisLaunchFileDir()]),
]"""


def test_arguments_have_defaults_and_the_last_value_given_counts(workspace):
    body = """[
        DeclareLaunchArgument('a', default_value='A'),
        DeclareLaunchArgument('b', default_value=['x', Config('a')]),
        LogInfo(msg=[Config('a'), ' ', Config('b')]),
    ]"""
    assert workspace.user_messages(workspace.launch(body)) == ['A xA']
    given = workspace.launch(body, 'a:=1', 'a:=2:=3')
    assert workspace.user_messages(given) == ['2:=3 x2:=3']
    assert given.finish() == 0


def test_a_required_argument_must_be_given(workspace):
    body = "[DeclareLaunchArgument('must', description='why'), LogInfo(msg='not reached')]"
    command = workspace.launch(body)
    assert command.finish() == 1
    assert "missing required argument 'must' (description: 'why')" in command.output
    assert 'not reached' not in command.output


@pytest.mark.parametrize('argument', ['novalue', 'a:=', ':=b'])
def test_a_malformed_argument_is_named(workspace, argument):
    command = workspace.launch('[]', argument)
    assert command.finish() == 1
    assert command.lines == [
        f"malformed launch argument '{argument}', expected format '<name>:=<value>'"
    ]


def test_a_value_that_is_not_among_the_choices_fails(workspace):
    body = "[DeclareLaunchArgument('a', choices=['x', 'y'], default_value='x')]"
    assert workspace.launch(body, 'a:=y').finish() == 0
    command = workspace.launch(body, 'a:=z')
    assert command.finish() == 1
    assert 'provided value "z" is not valid. Valid options are: [\'x\', \'y\']' in command.output


def test_show_args_text(workspace):
    workspace.launch_file(INNER, 'inner.launch.py', installed=True)
    path = workspace.launch_file(
        """[
        DeclareLaunchArgument('plain'),
        DeclareLaunchArgument('sum', default_value=[Config('plain'), '/', PythonExpression('1')]),
        DeclareLaunchArgument('one_of', choices=['1', '2'], default_value='1'),
        DeclareLaunchArgument('said', choices=['1'], description='Says', default_value='1'),
        DeclareLaunchArgument('maybe', default_value='', condition=IfCondition('true')),
        IncludeLaunchDescription(
            [FindPackageShare('standin_test_package'), '/launch/inner.launch.py'],
            launch_arguments={'needed': '1'}.items()),
        ResetLaunchConfigurations(),
        DeclareLaunchArgument('hidden', default_value=''),
    ]"""
    )
    command = workspace.run('launch', path, '--show-args')
    assert command.finish() == 0
    assert command.output == """\
Arguments (pass arguments as '<name>:=<value>'):

    'plain':
        no description given

    'sum':
        no description given
        (default: LaunchConfig('plain') + '/' + PythonExpr('1', ['math']))

    'one_of':
        One of: ['1', '2']
        (default: '1')

    'said':
        Says. Valid choices are: ['1']
        (default: '1')

    'maybe':*
        no description given
        (default: '')

    'needed':
        what is needed

    'other':
        no description given
        (default: 'default')

* argument(s) which are only used if specific conditions occur"""


def test_show_args_without_any(workspace):
    command = workspace.run('launch', workspace.launch_file('[]'), '-s')
    assert command.lines[-1] == '  No arguments.'


def test_print_shows_the_tree(workspace):
    path = workspace.launch_file("[LogInfo(msg=['a', Config('b')]), sh('true')]")
    command = workspace.run('launch', '-p', path)
    assert command.lines[1:] == [
        "├── LogInfo('a' + LaunchConfig('b'))",
        "└── ExecuteProcess(cmd=['sh', '-c', 'true'], cwd=None, env=None, shell=False)",
    ]


def test_include_passes_arguments_that_stay_set(workspace):
    workspace.launch_file(INNER, 'inner.launch.py', installed=True)
    directory = workspace.share / 'launch'
    command = workspace.launch(
        """
        source = PythonLaunchDescriptionSource(
            [FindPackageShare('standin_test_package'), '/launch/inner.launch.py'])
        return LaunchDescription([
            SetLaunchConfiguration('x', 'X'),
            IncludeLaunchDescription(
                source, launch_arguments={'needed': [Config('x'), '1']}.items()),
            LogInfo(msg=['after ', Config('needed')]),
        ])
        """
    )
    assert workspace.user_messages(command) == [
        'needed=X1 other=default',
        f'in {directory}',
        'after X1',
    ]


def test_include_without_a_required_argument_fails(workspace):
    workspace.launch_file(INNER, 'inner.launch.py', installed=True)
    command = workspace.launch(
        """[
        SetLaunchConfiguration('needed', 'this is not an argument'),
        IncludeLaunchDescription(
            [FindPackageShare('standin_test_package'), '/launch/inner.launch.py'],
            launch_arguments={'other': ''}.items()),
    ]"""
    )
    assert command.finish() == 1
    assert (
        "Included launch description missing required argument 'needed' "
        "(description: 'what is needed'), given: [other]"
    ) in command.output


def test_groups_are_scopes(workspace):
    command = workspace.launch(
        """[
        SetLaunchConfiguration('a', '1'),
        GroupAction([
            SetLaunchConfiguration('a', '2'),
            SetEnvironmentVariable('STANDIN_X', 'set'),
            LogInfo(msg=[Config('a'), Config('b'), EnvironmentVariable('STANDIN_X')]),
        ], launch_configurations={'b': 'B'}),
        LogInfo(msg=[Config('a'), Config('b', default='-'),
                     EnvironmentVariable('STANDIN_X', default_value='unset')]),
        GroupAction([LogInfo(msg=[Config('a', default='-'), Config('k')])],
                    forwarding=False, launch_configurations={'k': Config('a')}),
        GroupAction([SetLaunchConfiguration('a', '3')], scoped=False),
        LogInfo(msg=Config('a')),
    ]"""
    )
    assert workspace.user_messages(command) == ['2Bset', '1-unset', '-1', '3']


def test_environment_and_configuration_actions(workspace):
    command = workspace.launch(
        """[
        PushEnvironment(),
        SetEnvironmentVariable('STANDIN_X', 'x'),
        AppendEnvironmentVariable('STANDIN_X', 'y'),
        AppendEnvironmentVariable('STANDIN_X', 'z', prepend=True, separator='-'),
        LogInfo(msg=EnvironmentVariable('STANDIN_X')),
        UnsetEnvironmentVariable('STANDIN_X'),
        LogInfo(msg=EnvironmentVariable('STANDIN_X', default_value='unset')),
        PopEnvironment(),
        PushLaunchConfigurations(), SetLaunchConfiguration('a', '1'), PopLaunchConfigurations(),
        LogInfo(msg=Config('a', default=False)),
        SetLaunchConfiguration('b', '2'), ResetLaunchConfigurations({'c': Config('b')}),
        LogInfo(msg=[Config('b', default='-'), Config('c')]),
        UnsetLaunchConfiguration('c'), LogInfo(msg=Config('c', default='-')),
    ]"""
    )
    assert workspace.user_messages(command) == ['z-x:y', 'unset', 'False', '-2', '-']


def test_conditions(workspace):
    command = workspace.launch(
        """[
        SetLaunchConfiguration('yes', 'True'),
        LogInfo(msg='if', condition=IfCondition(Config('yes'))),
        LogInfo(msg='unless', condition=UnlessCondition(Config('yes'))),
        LogInfo(msg='number', condition=IfCondition(' 1 ')),
        LogInfo(msg='equal', condition=LaunchConfigurationEquals('yes', 'True')),
        LogInfo(msg='unset', condition=LaunchConfigurationEquals('no', None)),
        LogInfo(msg='different', condition=LaunchConfigurationNotEquals('yes', 'True')),
        LogInfo(msg='expression', condition=IfCondition(PythonExpression(['2 > 1']))),
        LogInfo(msg='bad', condition=IfCondition('maybe')),
    ]"""
    )
    assert workspace.user_messages(command) == ['if', 'number', 'equal', 'unset', 'expression']
    assert "expected one of [true, 1, false, 0] but got 'maybe'" in command.output
    assert command.finish() == 1


@pytest.mark.parametrize(
    ('substitution', 'text'),
    [
        ("PathJoinSubstitution(['a', Config('b', default='c'), 'd'])", 'a/c/d'),
        ("PythonExpression(['sqrt(', '16', ') + math.floor(1.5)'])", '5.0'),
        ("EqualsSubstitution(Config('n', default='3'), 3.0)", 'true'),
        ("EqualsSubstitution(True, '1')", 'true'),
        ("NotEqualsSubstitution('a', 'b')", 'true'),
        ("NotSubstitution('false')", 'true'),
        ("AndSubstitution('true', 'false')", 'false'),
        ("OrSubstitution('true', '0')", 'true'),
        ("AllSubstitution('true', 'true', '1')", 'true'),
        ("AnySubstitution('false', '0')", 'false'),
        ("IfElseSubstitution('true', 'yes', Config('is not looked up'))", 'yes'),
        ("Command('echo said')", 'said'),
        ("Command('sh -c \"echo said; echo more >&2\"', on_stderr='ignore')", 'said'),
    ],
)
def test_substitutions(workspace, substitution, text):
    assert workspace.user_messages(workspace.launch(f'[LogInfo(msg={substitution})]')) == [text]


@pytest.mark.parametrize(
    ('substitution', 'message'),
    [
        ("Config('nope')", "launch configuration 'nope' does not exist"),
        ("EnvironmentVariable('STANDIN_NOPE')", "environment variable 'STANDIN_NOPE' does not"),
        ("FindExecutable(name='standin-nope')", "executable 'standin-nope' not found on the PATH"),
        ("FindPackageShare('standin_nope')", "package 'standin_nope' not found"),
        ("Command('sh -c \"exit 3\"')", 'executed command failed. Command: sh -c "exit 3"'),
        ("Command('sh -c \"echo no >&2\"')", 'executed command showed stderr output'),
        ("NotSubstitution('perhaps')", 'perhaps'),
        ("IfElseSubstitution('perhaps', 'a')", 'perhaps'),
    ],
)
def test_a_substitution_that_fails_ends_the_launch(workspace, substitution, message):
    command = workspace.launch(f"[LogInfo(msg={substitution}), LogInfo(msg='not reached')]")
    assert command.finish() == 1
    assert '[ERROR] [launch]: Caught exception in launch (see debug' in command.output
    assert message in command.output
    assert 'not reached' not in command.output


def test_opaque_functions_and_coroutines(workspace):
    command = workspace.launch(
        """
        async def later(context, what):
            import asyncio
            await asyncio.sleep(0)
            print('later', what, context.is_shutdown, flush=True)

        async def forever():
            import asyncio
            await asyncio.sleep(1000)

        def now(context, *args, **kwargs):
            return [LogInfo(msg=[str(args), str(kwargs), Config('a')])]

        return LaunchDescription([
            SetLaunchConfiguration('a', 'A'),
            OpaqueFunction(function=now, args=[1], kwargs={'x': 2}),
            OpaqueCoroutine(coroutine=later, args=['it']),
            OpaqueCoroutine(coroutine=forever, ignore_context=True),
            TimerAction(period=0.1, actions=[Shutdown()]),
        ])
        """
    )
    assert workspace.user_messages(command) == ["(1,){'x': 2}A"]
    assert 'later it False' in command.lines
    assert command.finish() == 0


@pytest.mark.parametrize(
    ('body', 'named'),
    [
        ('from launch.actions import Foo', 'launch.actions.Foo'),
        ('import launch; launch.substitutions.Foo', 'launch.substitutions.Foo'),
        ('from launch_ros.actions import ComposableNodeContainer', 'ComposableNodeContainer'),
        ('import launch; launch.frontend', 'launch.frontend'),
        ("LogInfo(msg='', colour='red')", 'LogInfo(): keyword argument colour'),
        ("sh('true', nice=3)", 'ExecuteProcess(): keyword argument nice'),
        ("Node(executable='x', plugin='y')", 'Node(): keyword argument plugin'),
        ('OnShutdown(on_shutdown=[], twice=1)', 'OnShutdown(): keyword argument twice'),
    ],
)
def test_what_the_standin_does_not_have_is_named(workspace, body, named):
    command = workspace.launch(f'{body}\nreturn LaunchDescription([])')
    assert command.finish() == 1
    assert f'{named} is not part of this stand-in' in command.output


@pytest.mark.parametrize('name', ['a.launch.xml', 'a.launch.yaml'])
@pytest.mark.parametrize('options', [[], ['--show-args']])
def test_launch_files_in_markup_are_refused(workspace, name, options):
    (workspace.directory / name).write_text('<launch/>')
    command = workspace.run('launch', name, *options)
    assert command.finish() == 1
    assert f"'{name}': this stand-in for the ROS 2 launch system reads Python" in command.output


def test_errors_of_a_launch_file(workspace):
    command = workspace.launch('[nonsense]')
    assert command.finish() == 1
    assert "NameError: name 'nonsense' is not defined" in command.output
    (workspace.directory / 'empty.launch.py').write_text('')
    command = workspace.run('launch', 'empty.launch.py')
    assert command.finish() == 1
    assert "does not contain the required function 'generate_launch_desc" in command.output
