"""Training over topics: modes of an actor, trajectories, policies, central inference."""
