"""Learning: the learner, the training loop and its progress."""
