"""Files of specs: their schema, their faults, and what they say."""
