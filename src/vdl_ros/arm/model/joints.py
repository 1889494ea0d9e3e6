"""Names and order of the arm's joints; each has a motor of the same name."""

#: Order of every array with one number per joint.
JOINTS = ('base', 'shoulder', 'elbow', 'wrist', 'gripper')
