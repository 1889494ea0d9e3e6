"""Parts of bench_cube: the scripted controllers."""
