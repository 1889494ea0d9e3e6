"""Command-line programs that are not nodes."""
