"""Trajectories, policies and central inference on topics."""
