"""How the work of a round is laid out on one machine: devices, chunks of clients, cores.

Nothing here changes a result on a CPU; it is a matter of speed and memory alone.

>>> import clusterfl_core as cf
>>> bank = cf.banks.Bank.fresh(cf.models.MLP(64, 32, 10), 4, seed=0)
>>> chunk_size(bank, cf.populations.rotated("digits", clients=8, clusters=4).train)
35
"""

import copy
import sys
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch

from clusterfl_core.check import shown

__all__ = ["activations", "chunk_size", "free_memory", "in_order", "named_device", "placed"]
__all__ += ["watched"]

LARGEST_CHUNK = 256  # clients handled as one batch on a CPU
LARGEST_ON_GPU = 4096  # there every batch costs the same few hundred launches, however small
CACHE = 2**25  # bytes: a chunk that fits the last cache of a core is fastest, measured
_SAID = weakref.WeakKeyDictionary()  # what activations has found for a model, by kind of point


def named_device(name):
    """The device with this name; "auto" as in :func:`run`."""
    if isinstance(name, str) and name == "auto":
        mps = "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device("cuda" if torch.cuda.is_available() else mps)
    if not isinstance(name, str | torch.device):
        raise ValueError(f"device must be 'auto' or a name torch knows, got {shown(name)}")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device must be 'auto' or a name torch knows, got {name!r}") from error
    return device if device.type == "cpu" else _usable(device)


@cache
def _usable(device):
    """The device, if it is there and computes."""
    try:
        torch.zeros(1, device=device).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"device {device} cannot be used on this machine: {why}") from error
    return device


def chunk_size(bank, clients, device="cpu"):
    """How many clients make a batch of about the size of the cache, or of memory on a GPU.

    A client is counted with its inputs as floats, what the layers say of them (under all models of
    the ``bank`` it is sent for the first, and there and back in training), and three models: where
    it starts, its gradient, and where it ends. Between 1 and 256 on a CPU, where it is a matter of
    speed alone, and up to 4096 on a GPU; at most a sixteenth of the free memory in any case.
    """
    points, numbers = clients.y.shape[1], clients.x[0, 0].numel()
    said = activations(bank.model, clients.take([0]).inputs(bank.dtype)[0, :1].cpu())
    model = sum(p.numel() for p in bank.model.parameters()) * bank.dtype.itemsize
    one = points * (numbers + (2 + len(bank)) * said) * bank.dtype.itemsize + 3 * model
    room, most = free_memory(device) / 16, LARGEST_ON_GPU
    if torch.device(device).type == "cpu":
        room, most = min(room, CACHE), LARGEST_CHUNK
    return int(min(max(room // one, 1), most))


def activations(model, x):
    """How many numbers a model's layers say for the points x [n, ...], counted once: an int."""
    known, kind = _SAID.setdefault(model, {}), (x.shape, x.dtype, model.training)
    if kind in known:
        return known[kind]
    said, before, model = [], [], copy.deepcopy(model).to(x)

    def after(part, given, found):
        if len(said) == before.pop():  # no layer inside has said anything
            found = found if isinstance(found, tuple | list) else [found]
            said.append(sum(one.numel() for one in found if isinstance(one, torch.Tensor)))

    for part in model.modules():
        part.register_forward_pre_hook(lambda *_: before.append(len(said)))
        part.register_forward_hook(after)
    with torch.no_grad():
        model(x)
    return known.setdefault(kind, sum(said))


def in_order(work, chunks, device):
    """Results of ``work`` for each chunk in order, on a CPU computed on all cores torch may use.

    Each core takes chunks of its own, with one thread inside: for the small matrices here that is
    faster than several threads in each product, and rounds as one thread does. At most one result
    a core waits to be taken. A single chunk is computed where it is asked for.
    """
    cores = torch.get_num_threads() if torch.device(device).type == "cpu" else 1
    if cores == 1:
        yield from map(work, chunks)
        return
    torch.set_num_threads(1)  # who takes the results must not wait for a second, busy core
    try:
        if len(chunks) == 1:
            yield work(chunks[0])
            return
        with ThreadPoolExecutor(cores, initializer=lambda: torch.set_num_threads(1)) as pool:
            waiting = deque()
            for chunk in chunks:
                waiting.append(pool.submit(work, chunk))
                if len(waiting) > cores:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(cores)  # the threads have set it for the whole BLAS


def placed(clients, device):
    """The clients on the device for the whole run, if a quarter of its free memory holds them."""
    needed = sum(t.numel() * t.element_size() for t in (clients.x, clients.y))
    return clients.to(device) if needed < free_memory(device) / 4 else clients


def free_memory(device="cpu"):
    """Bytes that can be had on a device; a guess of 4 GiB where the system does not tell."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return 4 * 2**30


def watched():
    """Whether this is a terminal or a live notebook, not an executed page, a test or a log."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel"):
        return bool(getattr(shell.kernel, "_allow_stdin", True))
    return sys.stderr.isatty()
