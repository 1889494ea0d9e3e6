"""Write MCAP bags and record topics."""
