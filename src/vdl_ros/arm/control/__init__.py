"""Control of the arm: trajectories followed with motors that are on or off; no ROS."""
