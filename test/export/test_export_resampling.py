"""Images become rows by their stamps: constant rate, errors, resampling, and counts."""

import numpy as np
import pytest

from vdl_ros.export.messages import ExportError
from vdl_ros.export.resampling import Timeline, mean_rate


def timeline(fps=10, gap=1.0, episode_seconds=0.0, resample=False, independent=False):
    return Timeline(fps, gap=gap, episode_seconds=episode_seconds, resample=resample,
                    independent=independent)


def place(line, seconds):
    return [line.place(round(each * 1e9)) for each in seconds]


def test_the_rate_ignores_lost_images():
    stamps = np.cumsum([0] + [33_366_700] * 50 + [10**9] * 5)
    assert mean_rate(stamps) == pytest.approx(29.97, abs=0.01)
    assert mean_rate(np.array([5])) == 0.0


def test_the_rate_of_simulated_stamps_is_their_mean():
    stamps = np.cumsum([0] + [20_000_000, 30_000_000, 50_000_000] * 20)
    assert mean_rate(stamps) == pytest.approx(30.0, abs=0.01)


def test_images_with_little_jitter_become_one_row_each():
    found = place(timeline(), [0.0, 0.14, 0.2, 0.33, 0.4])
    assert [each.begins for each in found] == [True, False, False, False, False]
    assert not any(each.dropped or each.repeats for each in found)
    # As the simulated camera stamps its pictures: in steps of 10 ms, of which none is lost.
    steps = np.cumsum([0.0] + [0.02, 0.03, 0.05] * 1000)
    assert sum(each.begins for each in place(timeline(fps=30), steps)) == 1


def test_a_drifting_camera_clock_is_followed():
    found = place(timeline(fps=30), np.arange(30 * 590) / 29.7)
    assert [number for number, each in enumerate(found) if each.begins] == [0]


@pytest.mark.parametrize('bad', [0.22, 0.21, 0.39, 0.9])
def test_uneven_images_are_errors_with_their_number(bad):
    line = timeline()
    place(line, [0.0, 0.1, 0.2])
    with pytest.raises(ExportError, match=r'image 4 comes 0\.\d+ s after .* s (before|after) the '
                                          r'time of its row; 10 frames/s allow 0\.0750 s: --res'):
        line.place(round(bad * 1e9))


@pytest.mark.parametrize('lost', range(500, 506))
def test_a_lost_image_is_detected_despite_jitter(lost):
    steps = np.cumsum([0.0] + [0.02, 0.03, 0.05] * 190)
    with pytest.raises(ExportError, match=f'image {lost + 1}|image {lost + 2}|image {lost + 3}'):
        place(timeline(fps=30), np.delete(steps, lost))


def test_another_rate_is_an_error():
    with pytest.raises(ExportError, match='30 frames/s allow'):
        place(timeline(fps=30), np.arange(300) / 25.0)


def test_a_gap_starts_an_episode():
    found = place(timeline(), [0.0, 0.1, 1.2, 1.3, 9.0])
    assert [each.begins for each in found] == [True, False, True, False, True]


def test_a_gap_is_never_shorter_than_two_periods():
    found = place(timeline(fps=1, gap=0.1), [0.0, 1.0, 2.0, 5.0])
    assert [each.begins for each in found] == [True, False, False, True]


def test_episodes_are_split_at_the_longest_length():
    found = place(timeline(episode_seconds=0.3), [0.1 * number for number in range(7)])
    assert [each.begins for each in found] == [True, False, False] * 2 + [True]


def test_no_episode_exceeds_the_resolution_of_video_times():
    found = place(timeline(fps=1), list(range(1300)))
    assert [number for number, each in enumerate(found) if each.begins] == [0, 600, 1200]


def test_resampling_repeats_and_drops_to_the_nearest_row():
    found = place(timeline(resample=True), [0.0, 0.1, 0.41, 0.43, 0.5, 0.62])
    assert [each.repeats for each in found] == [0, 0, 2, 0, 0, 0]
    assert [bool(each.dropped) for each in found] == [False, False, False, True, False, False]


def test_a_small_step_back_drops_an_image_and_a_large_one_starts_an_episode():
    found = place(timeline(), [5.0, 5.1, 5.1, 5.05, 5.2, 0.0, 0.1])
    assert [each.dropped for each in found] == [
        '', '', 'the same stamp twice', 'older than the image before', '', '', '']
    assert [each.begins for each in found] == [True, False, False, False, False, True, False]


def test_independent_images_may_have_any_distance():
    found = place(timeline(independent=True), [0.0, 0.001, 50.0, 49.9, 49.9, 49.95])
    assert [each.begins for each in found] == [True, False, False, True, False, False]
    assert [each.dropped for each in found] == ['', '', '', '', 'the same stamp twice', '']
