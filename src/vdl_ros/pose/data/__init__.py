"""Data for pose networks: randomised scenes, capture, and the data set."""
