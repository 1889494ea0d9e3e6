"""Parts of bench_reach: the scripted controllers."""
