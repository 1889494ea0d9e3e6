"""Parts of bench_scaling: figures and tables, the law and its plot, sums of learners."""
