"""Lesson 2: a training in one process, and its curve.

    python3 2_training.py

Trains CartPole with the classes that the nodes have, so that a debugger can stop anywhere, and
reads the curve that each run writes.
Try: ALGORITHM dqn instead of ppo; then the same over ROS 2,
`ros2 launch vdl_ros train.launch.py env_id:=CartPole-v1 algorithm:=ppo`.
"""

import csv
import time
from pathlib import Path

from vdl_ros import local_training

ALGORITHM = 'ppo'
FOLDER = Path(f'runs/lesson-{time.strftime("%H%M%S")}')

status = local_training.main([
    '--env_id', 'CartPole-v1', '--algorithm', ALGORITHM, '--total_steps', '30000', '--seed', '1',
    '--run_dir', str(FOLDER)])
if status:
    raise SystemExit(status)

with (FOLDER / 'progress.csv').open() as file:
    rows = [row for row in csv.DictReader(file) if row['mean_return_100'] != 'nan']
for row in rows[::max(1, len(rows) // 10)]:
    value = float(row['mean_return_100'])
    print(f'{row["agent_steps"]:>7} steps  {value:6.1f} {"#" * round(value / 10)}')
