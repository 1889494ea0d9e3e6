"""The grid of attacked runs, its phases, table and figures."""
