"""The model of the arm: joints, geometry, kinematics and motor commands."""
