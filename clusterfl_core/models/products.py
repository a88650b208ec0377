"""Products of batches of matrices that round alike whoever else is in the batch."""

import torch

__all__ = ["affine", "inner", "plus_product", "product"]


def _pair(one, *tensors):
    """Apply a product of batches to at least two clients.

    The BLAS takes another path for a batch of one, which rounds otherwise (measured in the book,
    "Simulating many clients"); a client must compute the same alone and among others.
    """
    if len(tensors[0]) != 1:
        return one(*tensors)
    return one(*(tensor.expand(2, *tensor.shape[1:]) for tensor in tensors))[:1]


def product(a, b):
    """Products of b pairs of matrices."""
    return _pair(torch.bmm, a, b)


def inner(a, b):
    """Products of b matrices with a vector each: a [b, n, d], b [b, d]."""
    return product(a, b[:, :, None])[..., 0]


def plus_product(base, a, b, factor):
    """Add factor * a b to base in place, for b triples of matrices."""
    if len(base) != 1:
        base.baddbmm_(a, b, alpha=factor)
    else:
        base.copy_(_pair(lambda *parts: torch.baddbmm(*parts, alpha=factor), base, a, b))


def affine(x, weight, bias):
    """X W' + b for b clients: x [b, n, d], weight [b, h, d], bias [b, h] or [h]."""
    return product(x, weight.mT).add_(bias[..., None, :])
