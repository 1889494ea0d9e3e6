"""Parts of bench_transport: DDS and raw TCP."""
