"""Calibration of one arm: the moves, what is estimated from them, and the file of the result."""
