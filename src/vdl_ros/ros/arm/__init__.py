"""Topics of the arm and of its camera, shared by nodes."""
