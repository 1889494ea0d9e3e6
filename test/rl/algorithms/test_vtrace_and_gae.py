"""V-trace and GAE agree with the papers' equations written out literally."""

import itertools

import numpy as np
import torch

from vdl_ros.rl.algorithms.algorithm import gae, vtrace


def draw(seed, steps=9, batch=4):
    """Return arrays of one batch: off-policy, with terminations and steps that do not count.

    In the order of ``vtrace``: log_rhos, discounts, rewards, values, valid; ``gae`` has no first.
    """
    rng = np.random.default_rng(seed)
    valid = rng.random((steps, batch)) > 0.2
    discounts = np.where(rng.random((steps, batch)) < 0.2, 0.0, 0.9)
    return (rng.normal(0, 1.5, (steps, batch)), discounts, rng.normal(size=(steps, batch)),
            rng.normal(size=(steps + 1, batch)), valid)


def tensors(arrays):
    return [torch.from_numpy(np.asarray(array)) for array in arrays]


def test_vtrace_targets_and_advantages_are_those_of_the_paper(naive_vtrace):
    clips = ((1.0, 1.0), (3.7, 2.2), (0.5, 1.5), (2.0, 0.0))
    sizes = itertools.cycle(((1, 1), (7, 1), (9, 4), (12, 3)))
    for seed, ((rho_clip, c_clip), lambda_) in enumerate(
            itertools.product(clips, (0.0, 0.8, 1.0))):
        arrays = draw(seed, *next(sizes))
        found = vtrace(*tensors(arrays), rho_clip=rho_clip, c_clip=c_clip, lambda_=lambda_)
        expected = naive_vtrace(*arrays, rho_clip, c_clip, lambda_)
        for name, one, other in zip(('targets', 'advantages'), found, expected, strict=True):
            np.testing.assert_allclose(
                one.numpy(), other, rtol=1e-9, atol=1e-9,
                err_msg=f'{name}: rho {rho_clip}, c {c_clip}, lambda {lambda_}')


def test_gae_advantages_are_those_of_the_paper(naive_gae):
    for lambda_ in (0.0, 0.5, 1.0):
        for seed, size in enumerate(((1, 1), (7, 1), (9, 4), (12, 3))):
            _, *arrays = draw(seed, *size)
            np.testing.assert_allclose(
                gae(*tensors(arrays), lambda_).numpy(), naive_gae(*arrays, lambda_),
                rtol=1e-9, atol=1e-12, err_msg=f'lambda {lambda_}, size {size}')
