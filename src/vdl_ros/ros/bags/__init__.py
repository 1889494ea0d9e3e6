"""MCAP bags: writing, reading, recording, captures."""
