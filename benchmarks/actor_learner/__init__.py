"""Parts of bench_actor_learner: one process against two actors."""
