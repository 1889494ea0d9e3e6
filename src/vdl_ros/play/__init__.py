"""Policies at work: load, evaluate, watch, match, export."""
