"""Environments on the topics of robots."""
