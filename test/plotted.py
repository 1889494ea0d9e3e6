"""What a plot shows: points of a colour, and text."""

import re

import matplotlib.image
import numpy as np

# The first curve.
BLUE = (0x1f, 0x6f, 0xeb)


def picture(path):
    """Return the colours of a picture, from 0 to 255, [H, W, 3]."""
    return np.round(255 * matplotlib.image.imread(path)[..., :3]).astype(int)


def ink(path, color):
    """Return how many points of the picture have this colour."""
    return int((picture(path) == color).all(-1).sum())


def words(path):
    """Return the text of an SVG: matplotlib repeats it beside the letters' outlines."""
    return re.findall(r'<!-- (.*) -->', path.read_text())
