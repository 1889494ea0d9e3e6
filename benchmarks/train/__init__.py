"""Parts of bench_train: the graph, serial mode and the roofline."""
