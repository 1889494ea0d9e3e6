"""What a launch file would start, found out in this process."""

import os
import sys
from pathlib import Path

import launch.actions
import pytest
from launch import LaunchContext
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

from vdl_ros.ros import launch_nodes

LAUNCH_FILES = Path(__file__).resolve().parents[2] / 'launch'


@pytest.fixture
def plan(monkeypatch):
    """Return a function that runs a launch file with arguments, but starts no node.

    It returns the nodes, each with its environment and launch_id, and what would be logged. An
    error of the launch file is raised.
    """
    nodes, lines = [], []

    class PlannedNode(launch_nodes.Node):
        def __init__(self, *, executable, **options):
            super().__init__(executable=executable, **options)
            self.planned = executable
            self.launch_id = options['parameters'][0].get('launch_id')

        def execute(self, context):
            nodes.append((self.planned, {**context.environment, 'launch_id': self.launch_id}))

    class PlannedLine(launch.actions.LogInfo):
        def __init__(self, *, msg):
            super().__init__(msg=msg)
            lines.append(msg)

    def visit(entity, context):
        for each in entity.visit(context) or ():
            visit(each, context)

    def run(file, *arguments):
        nodes.clear()
        lines.clear()
        monkeypatch.setattr(sys, 'argv', ['ros2', 'launch', 'vdl_ros', file, *arguments])
        visit(IncludeLaunchDescription(
            PythonLaunchDescriptionSource(str(LAUNCH_FILES / file)),
            launch_arguments=[tuple(each.split(':=', 1)) for each in arguments]),
            LaunchContext(argv=list(arguments)))
        return dict(nodes), list(lines)

    monkeypatch.setattr(launch_nodes, 'Node', PlannedNode)
    monkeypatch.setattr(launch.actions, 'LogInfo', PlannedLine)
    environment = dict(os.environ)
    yield run
    # A file that is refused leaves its scope open.
    os.environ.clear()
    os.environ.update(environment)
