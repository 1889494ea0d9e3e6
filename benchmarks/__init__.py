"""Benchmarks, started by ``ros2 run vdl_ros bench_*``; docs/benchmarks.md has their results."""
