"""The simulated arm in MuJoCo: physics, motors, scene and rendering."""
