"""What experiments result in: fitness, tables, graphs, a page."""
