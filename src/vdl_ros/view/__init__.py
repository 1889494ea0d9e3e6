"""The browser view of the arm: 3D scene, side panel and buttons that move it; no ROS."""
