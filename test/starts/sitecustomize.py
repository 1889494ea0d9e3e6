"""Write down the id of each Python process that tests start; test/reporter.py counts them.

Python imports this at its start, because the folder is on PYTHONPATH. An executable that replaces
its process, as `ros2 run` does, writes the same id twice.
"""

import os


def write_down():
    path = os.environ.get('VDL_ROS_TEST_STARTS')
    if path:
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(file, b'%d\n' % os.getpid())
        os.close(file)


write_down()
os.register_at_fork(after_in_child=write_down)
