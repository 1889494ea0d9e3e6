"""Other systems beside the graph: their installation, and a worker that trains with each."""
