"""Fresh parameters of a model, as its parts draw them, from a seed and from nothing else."""

import copy

import torch

from clusterfl_core.randomness import drawing_from

__all__ = ["drawn"]


def drawn(model, seeds):
    """Fresh parameters of a model for each seed: a list of dicts by name.

    Each part of the model is drawn by its own ``reset_parameters`` after the parts inside it, as
    PyTorch does when it builds a layer. The model and torch's global generator stay as they are.

    Raises
    ------
    ValueError
        If no ``reset_parameters`` draws a parameter, for all models would begin with the same one;
        or if one draws from a generator that is not torch's, so that a seed means nothing.
    """
    rows = [_one(model, seed) for seed in seeds]
    homes = {getattr(_reset(part), "__module__", "").split(".")[0] for part in model.modules()}
    again = {} if homes <= {"torch", "clusterfl_core"} else _one(model, seeds[0])
    for name, tensor in again.items():
        if not torch.equal(tensor, rows[0][name]):
            raise ValueError(
                f"{name} of {type(model).__name__} is drawn from a generator that is not "
                "torch's (NumPy's, Python's?), so that a seed means nothing"
            )
    return rows


def _reset(part):
    """What draws the parameters of a part: a method of its own, or nothing."""
    return getattr(part, "reset_parameters", getattr(part, "_reset_parameters", lambda: None))


def _one(model, seed):
    """Fresh parameters of one model, by name."""
    fresh = copy.deepcopy(model).cpu()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.fill_(torch.nan)  # what is still NaN afterwards was not drawn
    with drawing_from(torch.Generator().manual_seed(seed)):
        fresh.apply(lambda part: _reset(part)())
    for name, part in fresh.named_modules():
        own = [n for n, p in part.named_parameters(recurse=False) if p.isnan().any()]
        if own:
            raise ValueError(
                f"{name or 'the model'} ({type(part).__name__}) has the parameters {own} but no "
                "method reset_parameters that draws them"
            )
    return {name: parameter.detach() for name, parameter in fresh.named_parameters()}
