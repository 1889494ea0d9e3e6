"""Lesson 5: what a recording holds.

    ros2 launch vdl_ros arm.launch.py record:=bags/lesson    # in another terminal
    python3 5_recording.py bags/lesson                       # after some moves, and Ctrl-C there

Reads the bag without ROS, counts its messages, and draws the angles of the joints over time.
Try: the bag of a demonstration of `record_episodes`; `ros2 run vdl_ros player` shows it again.
"""

import sys
from collections import Counter
from pathlib import Path

import matplotlib

matplotlib.use('agg')

import matplotlib.pyplot as plt

from vdl_ros.bags.messages import decode
from vdl_ros.bags.reader import BagReader

counts: Counter[str] = Counter()
times, angles, names = [], [], []
for message in BagReader(Path(sys.argv[1])):
    counts[f'{message.topic} ({message.type})'] += 1
    if message.topic.endswith('arm/joint_states'):
        state = decode(message.data, message.type)
        times.append(message.stamp_ns * 1e-9)
        angles.append(list(state.position))
        names = list(state.name)

for topic, count in counts.most_common():
    print(f'{count:7} {topic}')
figure, axes = plt.subplots(figsize=(8, 4), layout='constrained')
axes.plot([each - times[0] for each in times], angles, label=names)
axes.set(xlabel='s', ylabel='rad')
axes.legend()
figure.savefig('joints.png', dpi=120)
print(f'joints.png: {len(times)} joint states')
