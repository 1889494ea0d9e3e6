"""Drive to a place, which is another one in each episode."""

import math

from vdl_ros.robots.task import Task


class Drive(Task):
    # Added to the features in the observation: where the goal is, seen from the robot.
    goals = ('ahead', 'left', 'near')
    # Of the target, x, y, z in m, which people see; a task may have none.
    frame = 'odom'

    def __init__(self, contract, close):
        super().__init__(contract)
        self.close = close

    def begin(self, measured, random):
        self.target = [*random.uniform(-1.5, 1.5, 2), 0.0]

    def begin_demonstrated(self, measured):
        # A person drove to where the recording ends.
        self.target = [measured[-1]['x'], measured[-1]['y'], 0.0]

    def goal(self, measured):
        distance = self.distance(measured)
        bearing = math.atan2(self.target[1] - measured['y'], self.target[0] - measured['x'])
        turn = bearing - measured['yaw']
        return math.cos(turn), math.sin(turn), 1.0 - distance

    def reward(self, before, after):
        # Metres that it came nearer, less for each step that it takes.
        nearer = self.distance(before) - self.distance(after)
        return 10.0 * nearer - 0.05 + 5.0 * self.success(after)

    def success(self, after):
        return self.distance(after) < self.close

    def distance(self, measured):
        return math.hypot(self.target[0] - measured['x'], self.target[1] - measured['y'])
