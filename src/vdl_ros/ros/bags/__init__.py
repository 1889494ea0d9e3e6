"""Write MCAP bags, record topics, and capture frames."""
