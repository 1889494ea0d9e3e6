"""Runs on disk: folders, checkpoints, recorded series, groups of runs."""
