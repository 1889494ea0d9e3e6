"""A robot learns from a person who shows and helps, on its topics."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / 'examples' / 'diff_drive'


def test_robots_that_a_person_has_taught_soon_do_it_alone(launch, run):
    for name, *parameters in (('simulation', 'speed:=5.0'), ('person', 'first:=3')):
        words = [word for each in ('robots:=8', *parameters) for word in ('-p', each)]
        launch('python3', str(FOLDER / f'{name}.py'), '--ros-args', *words)
    training = launch.file(
        'train', f'robots:={FOLDER}', 'env_id:=robot/diff_drive', 'num_envs:=8', 'algorithm:=sac',
        'total_steps:=12000', f'run_dir:={run}', 'black_box:=none')

    def is_taught():
        alone = re.findall(r'alone +(\d+)%', training.output)
        return alone and int(alone[-1]) >= 50

    training.wait_for(is_taught, 'half of the episodes succeed without help')
    training.stop()
    # The person may find a robot only after its first episode has begun.
    assert max(run.scalars('takeovers/share')) > 0.5
    assert 0.0 < run.summary['takeovers']['share'] < 0.9
