"""An attack on the pose network through the images of the camera."""
