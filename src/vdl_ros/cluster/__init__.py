"""Trainings over several hosts: the hosts file, what runs where, ssh."""
