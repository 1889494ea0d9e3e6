"""Frames are complete and in order, whatever arrives late, twice or not at all."""

import random

from vdl_ros.pose.pending_frames import FrameTracker, UnsolicitedFrames

PARTS = ('a', 'b', 'c')


def book(first=0, last=100, window=4):
    return FrameTracker(first, last, PARTS, window=window, patience=1.0)


def test_a_window_of_frames_is_pending_and_they_are_returned_in_order():
    frames = book()
    assert frames.due_requests(0.0) == [0, 1, 2, 3]
    assert frames.due_requests(0.5) == []
    for part in PARTS[:2]:
        frames.put(0, part, b'0' + part.encode())
    # A second one and one that nobody requested are ignored.
    frames.put(0, 'a', b'second')
    frames.put(99, 'a', b'')
    assert frames.unexpected == 2
    # Incomplete frames are requested again; the parts that were there count still.
    assert frames.missing == ['c']
    assert frames.due_requests(1.0) == []
    assert frames.due_requests(1.1) == [0, 1, 2, 3]
    assert frames.repeated == 4
    for part in reversed(PARTS):
        frames.put(1, part, b'1' + part.encode())
    assert list(frames.pop_complete()) == []
    frames.put(0, 'c', b'0c')
    left = list(frames.pop_complete())
    assert left == [(number, {part: f'{number}{part}'.encode() for part in PARTS})
                    for number in (0, 1)]
    assert list(left[1][1]) == list(PARTS)
    assert frames.due_requests(1.1) == [4, 5]


def test_every_frame_is_returned_once_despite_losses():
    for seed in range(5):
        chance, frames = random.Random(seed), book(first=7, last=60)
        left, now = [], 0.0
        while not frames.finished:
            now += 0.3
            requested = [(index, part) for index in frames.due_requests(now) for part in PARTS]
            chance.shuffle(requested)
            for index, part in requested:
                for _ in range(chance.choice((0, 1, 1, 1, 2))):
                    frames.put(index, part, b'')
            left += [index for index, _ in frames.pop_complete()]
            assert now < 1000.0, seed
        assert left == list(range(7, 60)), seed


def test_unsolicited_frames_match_parts_by_stamp_up_to_the_number():
    frames = UnsolicitedFrames(2, 4, ('a', 'b'), waiting=3)
    assert frames.due_requests(0.0) == []
    frames.put(50, 'b', b'')
    assert frames.missing == ['a']
    frames.put(10, 'a', b'')
    assert list(frames.pop_complete()) == []
    for stamp in (50, 10, 20):
        frames.put(stamp, 'a', b'')
        frames.put(stamp, 'b', b'')
    assert [stamp for stamp, _ in frames.pop_complete()] == [50, 10]
    assert frames.finished
    for stamp in range(100, 110):
        frames.put(stamp, 'a', b'')
    assert frames.unexpected == 7


def test_the_bytes_of_incomplete_unsolicited_frames_are_bounded():
    frames = UnsolicitedFrames(0, 4, ('a', 'b'), max_bytes=100)
    for stamp in range(3):
        frames.put(stamp, 'a', bytes(40))
    frames.put(3, 'a', bytes(101))
    assert frames.unexpected == 4
    for part in ('a', 'b'):
        frames.put(4, part, bytes(50))
    assert [stamp for stamp, _ in frames.pop_complete()] == [4]
