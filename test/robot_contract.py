"""A contract for tests, as the content of its file."""

GOOD = {
    'rate': 20.0,
    'topics': {'odom': {'topic': 'odom', 'type': 'nav_msgs/msg/Odometry', 'timeout': 0.5}},
    'features': [{'name': 'speed', 'from': 'odom', 'field': 'twist.twist.linear.x',
                  'unit': 'm/s', 'low': -1, 'high': 1}],
    'actions': {'topic': 'cmd_vel', 'type': 'geometry_msgs/msg/Twist', 'parts': [
        {'name': 'forward', 'field': 'linear.x', 'unit': 'm/s', 'low': -1, 'high': 1}]},
    'late': {'action': 'stop', 'limit': 0.5},
    'reset': {'none': True},
    'reward': {'function': 'rewards:speed', 'arguments': {'factor': 2.0}},
    'episode_steps': 10}
