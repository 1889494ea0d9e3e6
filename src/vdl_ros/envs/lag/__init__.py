"""Delays of observations and actions, and environments on their own clock."""
