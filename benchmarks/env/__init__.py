"""Parts of bench_env: environments, alone and vectorised."""
