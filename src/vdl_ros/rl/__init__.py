"""Learning without ROS: losses, networks, actors, learners, checkpoints."""
