"""Environments of other packages."""
