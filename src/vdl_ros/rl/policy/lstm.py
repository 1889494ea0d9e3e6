"""An LSTM over an unroll whose state is reset where an episode starts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vdl_ros.rl.device import CPU

__all__ = ['run_lstm']


def run_lstm(
    lstm: nn.LSTMCell, features: Tensor, is_reset: Tensor, state: Tensor,
) -> tuple[Tensor, Tensor]:
    """
    Return the LSTM's outputs, [T, B, H], and its state after them, [B, 2 H].

    Args:
        lstm: the cell.
        features: [T, B, F].
        is_reset: [T, B] bool, true where an episode starts.
        state: [B, 2 H], before the first step.
    """
    hidden, cell = state.chunk(2, -1)
    kept = (~is_reset).to(features.dtype).unsqueeze(-1)
    weights = [lstm.weight_ih, lstm.weight_hh, lstm.bias_ih, lstm.bias_hh]
    outputs = []
    for start, stop in _segments(is_reset):
        hidden, cell = hidden * kept[start], cell * kept[start]
        if stop - start == 1:
            hidden, cell = lstm(features[start], (hidden, cell))
            outputs.append(hidden[None])
            continue
        output, hidden, cell = torch.lstm(
            features[start:stop], (hidden[None], cell[None]), weights, has_biases=True,
            num_layers=1, dropout=0.0, train=torch.is_grad_enabled(), bidirectional=False,
            batch_first=False)
        hidden, cell = hidden[0], cell[0]
        outputs.append(output)
    return torch.cat(outputs), torch.cat([hidden, cell], -1)


def _segments(is_reset: Tensor) -> list[tuple[int, int]]:
    """
    Return parts of an unroll, bool [T, B], as first step and end; only their first has resets.

    On a CPU one call for a part of several steps takes a third of the time of one call for each.
    On other devices to look for resets would wait for the device, so each step is a part.
    """
    steps = len(is_reset)
    if is_reset.device != CPU:
        return [(t, t + 1) for t in range(steps)]
    starts = [0, *(1 + t for t in is_reset[1:].any(-1).nonzero().flatten().tolist())]
    return list(zip(starts, [*starts[1:], steps], strict=True))
