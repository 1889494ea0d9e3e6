"""Data for pose networks: randomized scenes, captured frames and data sets."""
