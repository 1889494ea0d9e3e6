"""Experiments: specs, trials and sessions, search, fitness, graphs."""
