"""Topic statistics and thread time shares on ``/statistics``."""
