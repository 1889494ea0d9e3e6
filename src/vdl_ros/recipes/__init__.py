"""Files that say what to train: settings, presets, agents of one world."""
