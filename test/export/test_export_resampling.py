"""Images become rows by their stamps: constant rate, errors, resampling, and counts."""

import numpy as np
import pytest

from vdl_ros.export.synchronizer import ExportOptions, mean_rate, place_images


def place(seconds, fps=10, **options):
    return place_images([round(each * 1e9) for each in seconds], fps, ExportOptions(**options))


def begins(placed):
    """Return the numbers of the images that begin an episode."""
    return [number for number, each in enumerate(placed) if each.begins]


# As the simulated camera stamps its pictures: in steps of 10 ms, of which none is lost.
UNEVEN = np.cumsum([0.0] + [0.02, 0.03, 0.05] * 1000)


def test_the_rate_ignores_lost_images_and_is_the_mean_of_simulated_ones():
    stamps = np.cumsum([0] + [33_366_700] * 50 + [10**9] * 5)
    assert mean_rate(stamps) == pytest.approx(29.97, abs=0.01)
    assert mean_rate(np.array([5])) == 0.0
    assert mean_rate((UNEVEN[:61] * 1e9).astype(int)) == pytest.approx(30.0, abs=0.01)


def test_images_with_little_jitter_or_drift_become_one_row_each():
    found = place([0.0, 0.14, 0.2, 0.33, 0.4])
    assert begins(found) == [0]
    assert not any(each.dropped or each.repeats for each in found)
    assert begins(place(UNEVEN, fps=30)) == [0]
    assert begins(place(np.arange(30 * 590) / 29.7, fps=30)) == [0]


def test_uneven_images_and_another_rate_are_errors_with_their_number():
    for bad in (0.22, 0.39, 0.9):
        with pytest.raises(ValueError, match=r'image 4 comes 0\.\d+ s after .* s (before|after) '
                                             r'the time of its row; 10 frames/s allow 0\.0750 s'):
            place([0.0, 0.1, 0.2, bad])
    for lost in range(500, 506):  # despite jitter
        with pytest.raises(ValueError, match=f'image ({lost + 1}|{lost + 2}|{lost + 3}) '):
            place(np.delete(UNEVEN[:570], lost), fps=30)
    with pytest.raises(ValueError, match='30 frames/s allow'):
        place(np.arange(300) / 25.0, fps=30)


def test_gaps_and_the_longest_length_start_episodes():
    assert begins(place([0.0, 0.1, 1.2, 1.3, 9.0])) == [0, 2, 4]
    # A gap is never shorter than two periods.
    assert begins(place([0.0, 1.0, 2.0, 5.0], fps=1, gap=0.1)) == [0, 3]
    assert begins(place([0.1 * number for number in range(7)], episode_seconds=0.3)) == [0, 3, 6]
    # The resolution of times in videos.
    assert begins(place(list(range(1300)), fps=1)) == [0, 600, 1200]


def test_resampling_repeats_and_drops_to_the_nearest_row():
    found = place([0.0, 0.1, 0.41, 0.43, 0.5, 0.62], resample=True)
    assert [each.repeats for each in found] == [0, 0, 2, 0, 0, 0]
    assert [bool(each.dropped) for each in found] == [False, False, False, True, False, False]


def test_a_small_step_back_drops_an_image_and_a_large_one_starts_an_episode():
    found = place([5.0, 5.1, 5.1, 5.05, 5.2, 0.0, 0.1])
    assert [each.dropped for each in found] == [
        '', '', 'the same stamp twice', 'older than the image before', '', '', '']
    assert begins(found) == [0, 5]
