"""Parts of bench_scaling: samplers, actors and learners."""
