"""The arm's joints, each with a motor of the same name."""

#: Order of every array with one number a joint.
JOINTS = ('base', 'shoulder', 'elbow', 'wrist', 'gripper')
