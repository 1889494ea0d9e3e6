"""Policies: networks, action distributions, normalization, exploration."""
