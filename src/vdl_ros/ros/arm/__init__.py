"""Parts that nodes of the arm and its camera share."""
