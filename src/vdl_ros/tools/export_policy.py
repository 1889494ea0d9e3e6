"""Exports the policy of a checkpoint: ``ros2 run vdl_ros export_policy CHECKPOINT --output FILE``.

The file runs without PyTorch. See docs/policy_files.md.

Exit status: 0 if the file was written and equals PyTorch, else 2.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

from vdl_ros.common.command_line import OneLineParser, run_tool
from vdl_ros.common.files import from_here
from vdl_ros.common.onnx_file import require_onnx
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.play.onnx_export import export_policy
from vdl_ros.ros.robots.robot_env import register


def main(args: Sequence[str] | None = None) -> int:
    parser = OneLineParser(
        prog='export_policy', description='Export the policy of a checkpoint as a file that runs '
        'without PyTorch.')
    add = parser.add_argument
    add('checkpoint', type=Path, metavar='CHECKPOINT', help='runs/<name>/checkpoint.pt')
    add('--output', type=Path, required=True, metavar='FILE', help='the file to write, *.onnx')
    add('--env_modules', default='', metavar='NAMES', help='modules that register environments')
    add('--robots', default='', metavar='FOLDER', help='of contracts NAME.yaml, for robot/NAME')
    options = parser.parse_args(args)
    options.checkpoint, options.output = from_here(options.checkpoint), options.output.absolute()

    def export() -> None:
        # Before modules are imported, which may take long.
        require_onnx()
        modules = EnvModulesConfig(env_modules=options.env_modules, robots=options.robots)
        import_modules(modules)
        register(modules, '', threading.Event())
        saved, size, parity = export_policy(options.checkpoint, options.output)
        print(f'{options.output}: {saved.env.env_id}, {saved.train.algorithm}, '
              f'{saved.agent_steps:,} steps; {size / 1e3:,.0f} kB; differs from PyTorch by at '
              f'most {parity.difference:.1g} on {parity.observations} observations')

    return run_tool('export_policy', export)
