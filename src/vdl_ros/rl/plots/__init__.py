"""Learning curves as numbers and as plots."""
