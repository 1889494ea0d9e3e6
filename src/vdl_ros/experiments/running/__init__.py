"""Runs what specs say: sessions, trials, searches."""
