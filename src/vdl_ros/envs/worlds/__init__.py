"""Worlds of several bodies: PettingZoo's parallel environments as vector environments."""
