"""Training and evaluation of pose networks."""
