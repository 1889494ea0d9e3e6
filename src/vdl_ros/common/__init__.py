"""What every part of the package uses: settings, files, signals, OpenGL, timers."""
