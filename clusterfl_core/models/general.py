"""How any model is computed for many clients at once, where its class brings no form of its own.

Either vectorised over clients by ``torch.func`` (*vmap*), or one client after another (*loop*): for
convolutions on a CPU, where that is faster, and for models that vmap cannot take.
"""

import copy
import threading
import warnings
import weakref

import torch
from torch import nn
from torch.func import functional_call, vmap

from clusterfl_core.models.door import check, found_fit
from clusterfl_core.models.forms import Form, form, pull

__all__ = ["batched", "loops"]

_COPIES = threading.local()
_REFUSED = weakref.WeakSet()  # models that vmap could not take


def batched(model, x):
    """The form of a model that is fit for points like x [b, n, ...]: its class's own, or this."""
    if not found_fit(model) and len(x):
        check(model, x[:2, :2].flatten(0, 1))
    return form(model) or _AnyModel(model)


def loops(model, device):
    """Whether the models of a bank are taken one after another.

    So it is on a CPU for convolutions: a bank of them becomes one grouped convolution, which is
    slow there. On a GPU the bank is faster.
    """
    if model in _REFUSED:
        return True
    convolves = any(isinstance(part, nn.Conv2d) for part in model.modules())
    return convolves and torch.device(device).type == "cpu"


class _AnyModel(Form):
    """Any model: vectorised over clients, or one client after another."""

    def __init__(self, model):
        self.model = model

    def outputs(self, tensors, x):
        call = self._call(tensors)

        def each():
            return torch.stack([call(*one) for one in zip(_rows(tensors), x, strict=True)])

        return self._vectorised(x, lambda: vmap(call)(tensors, x), each)

    def shared_outputs(self, tensors, x):
        parts = x if loops(self.model, x.device) else x.flatten(0, 1)[None]
        call = self._call(tensors)
        found = [torch.cat([call(one, part) for part in parts]) for one in _rows(tensors)]
        return torch.stack(found).unflatten(1, x.shape[:2])

    def gradients(self, tensors, x, y, factors, loss):
        call = self._call(tensors)

        def together():
            return pull(lambda own: vmap(call)(own, x), tensors, y, factors, loss)

        def alone(own, x, y, factors):
            real = factors != 0  # padding costs nothing
            if not real.any():
                return {name: torch.zeros_like(tensor) for name, tensor in own.items()}
            x, y, factors = (part if real.all() else part[real] for part in (x, y, factors))
            return pull(lambda leaves: call(leaves, x), own, y, factors, loss)

        def each():
            clients = zip(_rows(tensors), x, y, factors, strict=True)
            answers = [alone(*client) for client in clients]
            return {name: torch.stack([a[name] for a in answers]) for name in tensors}

        return self._vectorised(x, together, each)

    def _call(self, tensors):
        """The model as a function of its parameters and its inputs."""
        module = _own(self.model, next(iter(tensors.values())))
        return lambda parameters, points: functional_call(module, parameters, (points,))

    def _vectorised(self, x, together, each):
        """What ``together`` gives for all clients at once, or ``each`` one after another."""
        if loops(self.model, x.device):
            return each()
        try:
            return together()
        except Exception as error:  # vmap refuses in many ways; a fault of the model shows below
            found = each()
            _REFUSED.add(self.model)
            warnings.warn(
                f"{type(self.model).__name__} cannot be vectorised over clients, so one client is "
                f"computed after another, which is slower: {str(error).splitlines()[0][:150]}",
                stacklevel=2,
            )
            return found


def _own(model, tensor):
    """A copy of the thread's own, of the tensor's device and type, in the mode of the model.

    ``functional_call`` puts parameters into it while it runs: two threads must not share one, and
    a caller's model is never changed.
    """
    copies = vars(_COPIES).setdefault("of", weakref.WeakKeyDictionary())
    kept, key = copies.get(model), (tensor.device, tensor.dtype, model.training)
    if kept is None or kept[0] != key:
        with torch.inference_mode(False):
            copies[model] = kept = key, copy.deepcopy(model).to(tensor)
    return kept[1]


def _rows(tensors):
    """The parameters of each model by name."""
    parts = zip(*(tensor.unbind(0) for tensor in tensors.values()), strict=True)
    return [dict(zip(tensors, row, strict=True)) for row in parts]
