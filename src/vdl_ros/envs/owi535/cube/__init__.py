"""The tasks *push* and *pick and place*."""
