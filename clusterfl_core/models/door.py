"""Which models can be learned by many clients at once; the others are refused in one sentence."""

import copy
import weakref

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from clusterfl_core.check import kind, shown, whole
from clusterfl_core.models.forms import cross_entropy, form, point_loss

__all__ = ["check"]

_FIT = weakref.WeakKeyDictionary()  # of each model found fit: its mode, and its answer to a point


def check(model, x, classes=None):
    """Refuse a model that would silently compute something else than it says.

    Clients share parameters and nothing else, and each must compute the same alone and among
    others. So a model may hold constants as buffers but not change them, a point's answer may
    depend on no other point, nothing may be drawn at random, and every parameter is trained. This
    is found out by asking a copy of the model, in the mode it is in, for two points. A model that
    is not fit is a ValueError that names the part and what works instead.

    Parameters
    ----------
    model : torch.nn.Module
    x : Tensor [n, ...]
        Points of a client, as numbers.
    classes : int, optional
        Classes of the federation, 0 for regression. Default: labels are left out of it.
    """
    kind("model", model, torch.nn.Module)
    if not isinstance(x, torch.Tensor) or x.ndim < 2 or not len(x):
        raise ValueError(f"x must be points of a client, a tensor [n, ...], got {shown(x)}")
    classes = whole("classes", classes, 0, none=True)
    if not found_fit(model):
        _FIT[model] = (model.training, _answer(model, x))
    if classes is None:
        return
    answer, loss = _FIT[model][1], point_loss(model)
    shape = tuple(answer.shape[1:])
    if classes and (len(shape) != 1 or shape[0] < classes):
        raise ValueError(
            f"the model answers a point with the shape {shape}, {classes} classes need "
            f"({classes},); for regression give y as floating-point numbers"
        )
    if not classes and (shape or loss is cross_entropy):
        raise ValueError(
            f"the model answers a point with the shape {shape} and has the loss {loss.__name__}; "
            "regression needs the shape () and a class attribute clusterfl_loss"
        )
    points = loss(answer[None], torch.zeros(1, 2, dtype=torch.int64 if classes else answer.dtype))
    if tuple(points.shape) != (1, 2):
        raise ValueError(
            f"the model's clusterfl_loss must give one number a point, for 1 client with 2 points "
            f"the shape (1, 2), got {tuple(points.shape)}"
        )


def found_fit(model):
    """Whether a model has been checked in the mode it is in."""
    return _FIT.get(model, [None])[0] is model.training


def _answer(given, x):
    """What a model, if it is fit, says about two points."""
    word = type(given).__name__
    for name, parameter in given.named_parameters():
        if is_lazy(parameter):
            raise ValueError(f"{name} of {word} has no shape yet: call the model on a point first")
        if not parameter.requires_grad:
            raise ValueError(
                f"{name} of {word} asks for no gradient, but every parameter is trained: make what "
                "shall stay a buffer (register_buffer)"
            )
    for name, part in given.named_modules():
        norm = isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
        if norm and (part.training or part.running_mean is None):
            raise ValueError(
                f"{_called(name, part)} normalises with the statistics of a batch, which mix a "
                "point with others and with padding; GroupNorm and LayerNorm work"
            )
    model, source = copy.deepcopy(given).cpu(), torch.Generator().manual_seed(0)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for parameter in parameters.values():  # zeros would hide what depends on what
        parameter.nan_to_num_().clamp_(-10, 10)  # the module's own may never have been drawn
        parameter += 0.05 * torch.randn(parameter.shape, generator=source).to(parameter)
    x = x[:2].detach().cpu().to(next(iter(parameters.values())).dtype)
    pair = torch.stack([x[0], x[0] / 2 if torch.equal(x[0], x[-1]) else x[-1]])
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.no_grad():
        with _Watch(model):
            found = _asked(model, pair)
        again, alone, turned = (_asked(model, some) for some in (pair, pair[:1], pair.flip(0)))
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, before[name]):
            part = name.rpartition(".")[0]
            raise ValueError(
                f"{_called(part, model.get_submodule(part))} changes its buffer {name} while it "
                "computes, but only parameters are learned and sent; GroupNorm and LayerNorm work"
            )
    if not _close(found, again):
        raise ValueError(
            f"{word} answers the same points in two ways: it draws random numbers or remembers, "
            "and a seed would mean nothing"
        )
    if not (_close(found[:1], alone) and _close(found, turned.flip(0))):
        raise ValueError(
            f"what {word} answers to a point depends on the points beside it, padding too; the "
            "first axis counts points (for LSTM, GRU and attention: batch_first=True)"
        )
    if form(given) is not None:
        stacked = {name: parameter[None] for name, parameter in parameters.items()}
        try:
            same = _close(form(given).outputs(stacked, pair[None])[0], found)
        except (KeyError, RuntimeError):
            same = False
        if not same:
            raise ValueError(
                f"{word} computes something else than its form (a hook, an exchanged layer, a "
                "fault of the form): write a subclass with a forward of its own"
            )
    return found


def _called(name, part):
    return f"{name or 'the model'} ({type(part).__name__})"


def _asked(model, x):
    try:
        found = model(given := x.clone())
    except _Drew as draw:
        raise ValueError(
            f"{draw} draws random numbers while it computes, and a seed would mean nothing; take "
            "it out, give it dropout 0, or call eval() on the model, which switches it off"
        ) from None
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"{type(model).__name__} fails on inputs of shape {tuple(x.shape)}: "
            f"{type(error).__name__}: {said}"
        ) from error
    if not isinstance(found, torch.Tensor) or found.shape[:1] != x.shape[:1]:
        what = f"shape {tuple(found.shape)}" if hasattr(found, "shape") else type(found).__name__
        raise ValueError(
            f"{type(model).__name__} answers {what} for n = {len(x)}, it must be one tensor "
            "[n, classes] or [n]"
        )
    if not torch.equal(given, x):
        raise ValueError(
            f"{type(model).__name__} changes its inputs in place, which are the clients' data"
        )
    return found.detach()


def _close(a, b):
    tolerance = torch.finfo(a.dtype).eps ** 0.5
    return a.shape == b.shape and torch.allclose(
        a, b, rtol=tolerance, atol=tolerance * float(a.abs().max()), equal_nan=True
    )


class _Drew(RuntimeError):
    """A part draws random numbers; the message is its name."""


class _Watch(TorchDispatchMode):
    """Notices every draw of this thread, before it happens, and in which part of a model."""

    _should_skip_dynamo = classmethod(lambda _: False)  # True, the default, loads torch's compiler

    def __init__(self, model):
        super().__init__()
        self.inside = []
        for name, part in model.named_modules():
            part.register_forward_pre_hook(self._entering(_called(name, part)))
            part.register_forward_hook(self._leaving)

    def _entering(self, name):
        return lambda *_: self.inside.append(name)

    def _leaving(self, *_):
        self.inside.pop()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        names = [argument.name for argument in function._schema.arguments]
        given = dict(zip(names, args, strict=False)) | (kwargs or {})
        share = given.get("dropout_p", given.get("dropout", 1 if "dropout_p" not in names else 0))
        if torch.Tag.nondeterministic_seeded in function.tags and share:
            raise _Drew(self.inside[-1])
        return function(*args, **(kwargs or {}))
