"""The arm: geometry, kinematics, motors, USB protocol and simulation, without ROS."""
