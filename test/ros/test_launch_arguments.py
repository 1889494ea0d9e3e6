"""Only launch arguments that the user sets become parameters; failing nodes are restarted."""

import sys
from types import SimpleNamespace

import pytest
from launch import LaunchContext, LaunchDescription, LaunchService
from launch.actions import ExecuteProcess, LogInfo, RegisterEventHandler, Shutdown
from launch.event_handlers import OnProcessExit

from vdl_ros.common.children import OWN_MARK
from vdl_ros.common.settings import SettingError
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.launch_nodes import RestartDelays


def context(*words: str) -> LaunchContext:
    """Return a launch context as of ``ros2 launch``: arguments as given, else the defaults."""
    made = LaunchContext(argv=list(words))
    for argument in launch_arguments.declare(TrainConfig, *ALGORITHM_SETTINGS.values(), RunConfig):
        argument.execute(made)
    for word in words:
        name, _, value = word.partition(':=')
        made.launch_configurations[name] = value
    return made


def test_arguments_that_are_set_are_passed_on_with_the_type_of_their_setting():
    algorithms = ALGORITHM_SETTINGS.values()
    assert launch_arguments.given(context(), TrainConfig, RunConfig, *algorithms) == {}
    found = launch_arguments.given(
        context('algorithm:=dqn', 'n_step:=3', 'double_q:=false', 'priority_exponent:=1',
                'learning_rate:=1', 'run_dir:=runs/1'), TrainConfig, RunConfig, *algorithms)
    assert found == {'algorithm': 'dqn', 'n_step': 3, 'double_q': False, 'run_dir': 'runs/1',
                     'priority_exponent': 1.0, 'learning_rate': 1.0}
    # A default on the command line counts as set, and so does one of an including file.
    made = context('unroll_length:=20')
    made.launch_configurations['batch_size'] = '3'
    assert launch_arguments.given(made, TrainConfig) == {'unroll_length': 20, 'batch_size': 3}
    # The name in version 0.2.0.
    assert launch_arguments.given(context('max_policy_lag:=4'), TrainConfig) == {
        'max_in_flight': 4}
    for word, error in (('ppo_form:=klip', "^ppo_form: 'klip' is not allowed: one of 'clip"),
                        ('discount:=2', 'discount: 2.0 is not allowed: a number from 0 to 1')):
        with pytest.raises(SettingError, match=error):
            launch_arguments.given(context(word), TrainConfig, *algorithms)


def test_settings_in_a_file_count_as_set_unless_an_argument_sets_them(tmp_path):
    file = tmp_path / 'my.yaml'
    # Of a default a preset would win, if nobody set it.
    file.write_text('{batch_size: 3, seed: 4, unroll_length: 20, env_id: x, checkpoint_period: 5}')
    found = launch_arguments.given(
        context(f'config:={file}', 'seed:=5', 'total_steps:=7'), TrainConfig)
    assert found == {'batch_size': 3, 'seed': 5, 'unroll_length': 20, 'total_steps': 7}
    assert launch_arguments.given(context(f'config:={file}'), RunConfig) == {
        'checkpoint_period': 5.0}
    file.write_text('sed: 4')
    with pytest.raises(SettingError, match="my.yaml:1: sed: no such setting; did you mean 'seed'"):
        launch_arguments.given(context(f'config:={file}'), TrainConfig)


PARAMETERS = """
/**:
  ros__parameters:
    batch_size: 3
    max_policy_lag: 3
    learning_rate: 1e-3
    qos_overrides: {/policy: {subscription: {depth: 2}}}
left:
  learner: {ros__parameters: {unroll_length: 7, seed: 4}}
/left/*:
  ros__parameters: {seed: 3}
/right/learner:
  ros__parameters: {unroll_length: 8}
"""


def test_a_parameter_file_sets_what_arguments_do_not_set(tmp_path):
    file = tmp_path / 'params.yaml'
    file.write_text(PARAMETERS)
    made = context(f'params_file:={file}', 'batch_size:=4', 'discount:=0.5')
    assert launch_arguments.given(made, TrainConfig) == {
        'batch_size': 4, 'max_in_flight': 3, 'learning_rate': 1e-3, 'discount': 0.5}
    qos = {'qos_overrides./policy.subscription.depth': 2}
    assert launch_arguments.of_node(made, 'learner', TrainConfig) == qos
    made.launch_configurations['ros_namespace'] = '/left'
    # What names one node counts before what names several.
    assert launch_arguments.of_node(made, 'learner', TrainConfig) == qos | {
        'unroll_length': 7, 'seed': 4}
    assert launch_arguments.of_node(made, 'actor', TrainConfig) == qos | {'seed': 3}
    made = context(f'params_file:={file}', 'seed:=9')
    made.launch_configurations['ros_namespace'] = '/left'
    assert launch_arguments.of_node(made, 'learner', TrainConfig) == qos | {'unroll_length': 7}
    with pytest.raises(SettingError, match="/left/learner: 'seed': no such parameter"):
        launch_arguments.of_node(made, 'learner', RunConfig)


def test_a_parameter_file_that_cannot_be_used_is_named(tmp_path):
    file = tmp_path / 'params.yaml'
    for text, error in (
            (None, 'cannot be read: No such file'), ('{', 'not YAML'),
            ('batch_size: 3', "'/batch_size': not of the form NODE: ros__parameters: NAME: VALUE"),
            ('/**: {ros__parameters: [1]}', r'ros__parameters: \[1\] is not a mapping'),
            ('/**: {ros__parameters: {batch_size: x}}',
             "batch_size: 'x' is not allowed: a whole number")):
        if text is not None:
            file.write_text(text)
        with pytest.raises(SettingError, match=f'^params_file: .*params.yaml.*{error}'):
            launch_arguments.given(context(f'params_file:={file}'), TrainConfig)


def test_texts_are_parameters_that_stay_texts():
    found = launch_nodes.parameters({'actor_id': '007', 'a': 1})
    assert (found['actor_id'].value_type, found['a']) == (str, 1)


def test_unknown_arguments_are_errors_only_in_the_launched_file(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, 'argv', ['ros2', 'launch', 'vdl_ros', 'train.launch.py', 'sed:=1'])
    made = context('sed:=1')
    with pytest.raises(SettingError, match="sed: no such argument of train.launch.py; did you m"):
        launch_arguments.reject_unknown_arguments(made, 'train.launch.py', ['seed'])
    launch_arguments.reject_unknown_arguments(made, 'learner.launch.py', ['seed'])
    file = tmp_path / 'params.yaml'
    file.write_text('/**: {ros__parameters: {use_sim_time: true, sed: 1}}')
    made, known = context(f'params_file:={file}'), ['params_file', 'seed']
    with pytest.raises(SettingError, match="'sed': no such parameter .*; did you mean 'seed'"):
        launch_arguments.reject_unknown_arguments(made, 'train.launch.py', known, TrainConfig)


def test_a_finished_node_ends_the_launch_and_a_failed_one_does_not(tmp_path):
    unmade = tmp_path / 'cleared' / 'unmade'

    def end_with(code, on_success, mark=None, shutdown=False):
        mark = mark or (unmade if code else tmp_path)
        event = SimpleNamespace(
            returncode=code, process_name='learner-1', env={OWN_MARK: str(mark)})
        return launch_nodes.end_with(
            event, SimpleNamespace(is_shutdown=True) if shutdown else context(),
            on_success=on_success)

    assert end_with(0, True)
    for code, on_success in ((0, False), (-9, True), (1, True)):
        assert not end_with(code, on_success), (code, on_success)
    with pytest.raises(RuntimeError, match='learner-1 cannot run: it has logged why'):
        end_with(2, True)
    with pytest.raises(RuntimeError, match='learner-1 could not write its files'):
        end_with(3, True)
    # A library crashed after the end of the program.
    assert end_with(-11, True, tmp_path)
    # Its environment called exit(0).
    with pytest.raises(RuntimeError, match='learner-1 has not finished'):
        end_with(0, True, unmade)
    assert not end_with(0, False, unmade)
    # After a Ctrl-C, which a native library may have taken.
    assert not end_with(0, True, shutdown=True)
    assert not end_with(-6, True, tmp_path, shutdown=True)
    for code in (-9, 130, 0):
        with pytest.raises(RuntimeError, match=f'status {code} and has not saved: what it has'):
            end_with(code, True, unmade, shutdown=True)


@pytest.fixture
def end(monkeypatch):
    """Return a function: what a launch does when the process of a node that it starts ends."""
    monkeypatch.setattr(launch_nodes, 'TimerAction', SimpleNamespace)
    monkeypatch.setattr(launch_nodes, 'LogInfo', SimpleNamespace)
    monkeypatch.setattr(launch_nodes, 'OnProcessExit', SimpleNamespace)
    monkeypatch.setattr(launch_nodes, 'RegisterEventHandler', lambda handler: handler)

    def end_process(made, action):
        handler, left, _ = action.execute(made)
        assert handler.target_action is left.target_action
        event = SimpleNamespace(returncode=1, process_name='learner-1', env={})
        return handler.on_exit(event, made)
    return end_process


def test_an_alarm_is_said_unless_the_node_has_finished_its_work(monkeypatch, tmp_path):
    lines = []
    monkeypatch.setattr(launch_nodes, 'get_logger', lambda _: SimpleNamespace(error=lines.append))
    monkeypatch.setattr(launch_nodes, 'end_left', lambda mark: '')
    monkeypatch.setattr(launch_nodes, 'OnProcessExit', SimpleNamespace)
    monkeypatch.setattr(launch_nodes, 'RegisterEventHandler', lambda handler: handler)
    handler, _ = launch_nodes.with_children(LogInfo(msg='node'))
    for mark in (tmp_path / 'unmade', tmp_path):
        event = SimpleNamespace(
            returncode=-14, process_name='learner-1', env={OWN_MARK: str(mark)})
        assert handler.on_exit(event, context()) == []
        assert len(lines) == 1


def test_a_node_that_fails_at_every_start_is_started_again_only_a_few_times(end):
    made = context()
    action = launch_nodes.restarted(
        lambda: LogInfo(msg='node'), on_success=True, clock=lambda: 0.0)
    lines, timers = zip(*(end(made, action) for _ in range(8)), strict=True)
    assert [timer.period for timer in timers] == [1, 2, 4, 8, 16, 32, 32, 32]
    assert lines[4].msg == 'learner-1 is started again in 16 s (5 of 8)'
    with pytest.raises(RuntimeError, match='^learner-1 ended again and again'):
        end(made, action)


def test_a_shutdown_before_the_restart_of_a_learner_that_has_not_saved_is_a_failure():
    service = LaunchService()
    service.include_launch_description(LaunchDescription([
        RegisterEventHandler(OnProcessExit(on_exit=[Shutdown()])),
        launch_nodes.restarted(
            lambda: ExecuteProcess(cmd=['false'], name='learner'), on_success=True)]))
    assert service.run() == 1


def test_a_restarted_node_has_the_scope_of_its_first_start(end, monkeypatch):
    made = context('seed:=3')
    monkeypatch.setenv('VDL_SCOPE', 'inner')
    action = launch_nodes.restarted(lambda: LogInfo(msg='node'), on_success=True)
    end(made, action)
    made.launch_configurations['seed'] = '0'
    monkeypatch.setenv('VDL_SCOPE', 'outer')
    end(made, action)
    assert made.launch_configurations['seed'] == '3'
    assert made.environment['VDL_SCOPE'] == 'inner'


def test_delays_of_restarts_grow_are_bounded_in_number_and_are_reset_by_work():
    def delays(*works):
        made = RestartDelays()
        return [made.next(work) for work in works]

    assert None in delays(*[10.0] * 20), 'it dies after every start'
    assert set(delays(*[24.0] * 1000)) == {1}, 'it is killed now and then'
    assert delays(0.0, 0.0, 0.0, 3600.0) == [1, 2, 4, 1], 'it has worked after failures'


def test_a_recorder_is_started_with_a_bag_name_and_discovery_by_others_is_said(monkeypatch):
    made = context()
    assert launch_nodes.recorder(made) == []
    made.launch_configurations['record'] = 'bags/one'
    assert len(launch_nodes.recorder(made)) == 1
    for discovery, lines in (('SUBNET', 1), ('', 1), ('LOCALHOST', 0)):
        monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', discovery)
        assert len(launch_nodes.announced(context())) == lines, discovery
