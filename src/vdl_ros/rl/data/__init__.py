"""Training data: unrolls, batches, replay, stacked frames, episodes."""
