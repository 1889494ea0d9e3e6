"""Topic statistics and thread times on ``/statistics``."""
