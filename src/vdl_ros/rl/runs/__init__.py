"""Training runs on disk: folders, checkpoints, recorded runs and groups of them."""
