"""The checks of ``ros2 run vdl_ros doctor --peer HOST``, and the answers of the other host."""
