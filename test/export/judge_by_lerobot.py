"""Let LeRobot itself judge data sets: load, batch, delete, split and merge them.

In an environment of its own, of Python 3.12 or newer, without this package:

    pip install 'lerobot[dataset]'
    python test/export/judge_by_lerobot.py FOLDER [FOLDER ...] --output NEW_FOLDER

``check_dataset`` can then compare what LeRobot wrote below NEW_FOLDER.
"""

import argparse
from pathlib import Path

import lerobot
from lerobot.datasets.dataset_tools import delete_episodes, merge_datasets, split_dataset
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch.utils.data import DataLoader


def tell(what, dataset):
    print(f'{what}: {len(dataset)} rows in {dataset.num_episodes} episodes', flush=True)


def load(folder):
    """Return a data set of which every row was read, with its pictures."""
    dataset = LeRobotDataset(f'local/{folder.name}', root=folder)
    rows = sum(len(batch['index']) for batch in DataLoader(dataset, batch_size=16, shuffle=True))
    assert rows == len(dataset), (rows, len(dataset))
    for name, feature in dataset.features.items():
        value = dataset[len(dataset) - 1][name]
        size = tuple(feature['shape'])
        size = (size[2], *size[:2]) if feature['dtype'] == 'video' else size
        assert tuple(value.shape) in (size, () if size == (1,) else size), (name, value.shape)
    tell(folder, dataset)
    return dataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folders', nargs='+', type=Path)
    parser.add_argument('--output', required=True, type=Path)
    options = parser.parse_args()
    print(f'LeRobot {lerobot.__version__}')
    datasets = [load(each) for each in options.folders]
    for number, dataset in enumerate(datasets):
        if dataset.num_episodes > 1:
            tell('deleted', delete_episodes(
                dataset, [0], output_dir=options.output / f'deleted_{number}',
                repo_id=f'local/deleted_{number}'))
            for name, part in split_dataset(
                    dataset, {'first': 0.5, 'second': 0.5},
                    output_dir=options.output / f'split_{number}').items():
                tell(name, part)
    if len(datasets) > 1:
        tell('merged', merge_datasets(
            datasets, output_repo_id='local/merged', output_dir=options.output / 'merged'))


if __name__ == '__main__':
    main()
