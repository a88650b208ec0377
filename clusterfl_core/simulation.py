"""Run an algorithm on a federation, round after round, on one machine.

The loop is the contract of every algorithm: ``plan``, ``client_step``, ``absorb``. Clients are
handled in chunks, each one batch of tensors and as large as fits the cache; on several cores
several chunks are computed at once. On a CPU nothing depends on the chunk: a client computes the
same alone and among others, and answers are added in the order of the clients. An algorithm that
only sums its clients' models (IFCA, FedAvg) has a method ``gather`` and is given each chunk as it
comes, so that memory does not grow with the number of clients.

A GPU is not held to that: its libraries choose the order of sums by the size of a batch, and some
of PyTorch's backward passes (``max_pool2d``, ``Embedding``) add in whatever order threads finish.
Two runs there agree to rounding, which training amplifies.

Examples
--------
>>> import clusterfl_core as cf
>>> federation = cf.populations.rotated("digits", clients=8, clusters=4)
>>> settings = cf.IFCA(cf.models.MLP(64, 8, 10), clusters=4, local=cf.LocalSGD(5, 0.1))
>>> run = cf.run(settings, federation, rounds=2)
>>> [(record["round"], record["bytes_up"]) for record in run.history]
[(1, 19520), (2, 19520)]
"""

import re
import sys
import time
import zipfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, is_dataclass
from numbers import Integral
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from clusterfl_core import banks, clients, compute, evaluation, models, solvers
from clusterfl_core import contract as wire
from clusterfl_core.algorithms import baselines, cfl, fedsoft, ifca
from clusterfl_core.files import write_whole

MOST = 256  # clients handled as one batch
CACHE = 2**25  # bytes: a chunk that fits the last cache of a core is fastest, measured


@dataclass(frozen=True)
class Run:
    """What a run was, and what came of it.

    Parameters
    ----------
    algorithm
        The settings.
    seed : int
        The seed that fixed everything.
    data : str
        Fingerprint of the federation's data.
    state
        The state after the last round.
    history : list of dict
        One record a round: ``round`` (from 1), ``train_loss`` (mean over the clients that worked,
        of the loss they started the round from), ``clients`` (how many trained), ``accuracy`` (or
        ``error`` for regression: mean over the test clients, after the round),
        ``identity_accuracy`` (where the truth is known), ``empty`` (clusters nobody chose),
        ``bytes_down``, ``bytes_up``, ``seconds``.
    """

    algorithm: object
    seed: int
    data: str
    state: object
    history: list

    @property
    def models(self):
        """The bank of models after the last round."""
        return self.state.bank

    @property
    def assignments(self):
        """Which model of the bank is each client's: LongTensor [m]; -1 if never asked.

        Soft assignments (FedSoft, FedEM) are the share of each model: Tensor [m, k].
        """
        return self.state.assignments

    def save(self, path):
        """Write the run to a file, whole or not at all."""
        write_whole(path, lambda file: torch.save(self, file))

    @classmethod
    def load(cls, path):
        """Read a saved run.

        Only data and the classes of this package are read, so a file from elsewhere cannot run
        code. A model class of your own must be named first, with
        ``torch.serialization.add_safe_globals([MyModel])``.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is not a saved run, is damaged, or holds foreign classes.
        """
        try:
            with zipfile.ZipFile(path) as parts:
                damaged = parts.testzip()  # torch.load does not look at the checksums
            if damaged:
                raise ValueError(f"the checksum of {damaged} is wrong")
            with torch.serialization.safe_globals(_own_classes()):
                found = torch.load(path, weights_only=True)
        except FileNotFoundError:
            raise
        except Exception as error:  # damaged bytes make the readers fail in a dozen ways
            foreign = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
            if foreign:
                raise ValueError(
                    f"{path} holds {foreign[1]}, which is not of this package; if it is a model "
                    "of yours, call torch.serialization.add_safe_globals([...]) with it first"
                ) from error
            reason = str(error).split("\n")[0][:200]
            raise ValueError(
                f"{path} is not a run saved by this package, or it is damaged: {reason}"
            ) from error
        if not isinstance(found, cls):
            raise ValueError(f"{path} holds a {type(found).__name__}, not a saved run")
        return found


def _own_classes():
    modules = (banks, baselines, cfl, clients, wire, fedsoft, ifca, solvers, models)
    modules = (*modules, sys.modules[__name__])
    own = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and (is_dataclass(value) or issubclass(value, nn.Module))
    ]
    return [*own, nn.Linear, set]


class Diverged(FloatingPointError):
    """A loss or a model became infinite or NaN. ``run`` holds all up to the round before."""

    def __init__(self, message, run):
        super().__init__(message)
        self.run = run


def run(algorithm, federation, rounds, *, seed=0, device="auto", progress=True, checkpoint=None):
    """Run an algorithm on a federation.

    Parameters
    ----------
    algorithm
        Settings: IFCA, CFL, FedAvg, LocalOnly, ...
    federation : Federation
        Clients, test clients, and the truth for evaluation.
    rounds : int
        T, the number of rounds in all, at least 1.
    seed : int
        Fixes initialisation, client sampling and batches.
    device : str
        "auto" (CUDA where there is one, else Apple's MPS, else CPU) or a name that torch knows.
    progress : bool
        Show a progress bar where somebody watches (a terminal or a live notebook), never in an
        executed page or a log. It is removed at the end.
    checkpoint : path, optional
        File to which the run is written after each round. If it exists, the run goes on from it;
        it must be of the same algorithm, data and seed.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If an argument is out of bounds, or the checkpoint is of another run (it stays as it is).
    Diverged
        If a loss or a model became infinite or NaN.
    """
    device = named_device(device)
    done = begin(algorithm, federation, rounds, seed, checkpoint)
    bar = tqdm(
        total=rounds,
        initial=done.state.round,
        desc=type(algorithm).__name__,
        unit="round",
        leave=False,
        delay=1,
        disable=not (progress and _somebody_watches()),
    )
    clients = _placed(federation.train, device)

    def trip(state):
        return round_trip(algorithm, state, clients, device, keep=False)

    with bar:
        while done.state.round < rounds:
            done = one_more(done, federation, trip)
            if checkpoint is not None:
                done.save(checkpoint)
            bar.update()
    return done


def begin(algorithm, federation, rounds, seed=0, checkpoint=None):
    """A run of no rounds, or the one that a checkpoint holds; arguments as in :func:`run`."""
    if not isinstance(rounds, Integral) or rounds < 1:
        raise ValueError(f"rounds must be a whole number of at least 1, got {rounds!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"seed must be a whole number, not negative, got {seed!r}")
    most = getattr(algorithm, "resample", None)
    if most is not None and rounds > most:
        raise ValueError(
            f"rounds must be at most {most}, for which resample={most} has fresh points, "
            f"got {rounds}"
        )
    data = federation.fingerprint()
    done = Run(algorithm, seed, data, algorithm.init(federation, seed), [])
    if checkpoint is not None and Path(checkpoint).exists():
        done = _resume(checkpoint, done, rounds)
    return done


def restarts(algorithm, federation, rounds, *, seeds, progress=True):
    """Run from several initialisations and keep the one with the lowest final training loss.

    IFCA's remedy for a bad start: random initialisation with a few restarts (section 6). The
    paper's success test knows the truth; this choice looks at training losses only.

    Parameters
    ----------
    algorithm, federation, rounds, progress
        As in :func:`run`.
    seeds : iterable of int
        One run a seed.

    Returns
    -------
    best : Run
        The run whose final models have the lowest mean training loss over all clients.
    losses : dict of int to float
        That loss for each seed; infinity for a run that diverged.

    Raises
    ------
    ValueError
        If no seed is given.
    Diverged
        If every run diverged.
    """
    seeds = list(seeds)
    if not seeds:
        raise ValueError("seeds must name at least one seed")
    runs, losses = {}, {}
    for s in seeds:
        try:
            runs[s] = run(algorithm, federation, rounds, seed=s, progress=progress)
            losses[s] = training_loss(runs[s], federation)
        except Diverged:
            losses[s] = float("inf")
            if len(losses) == len(seeds) and not runs:
                raise
    return runs[min(runs, key=losses.get)], losses


def training_loss(run, federation):
    """Mean over the clients of the lowest loss among the run's models on their training data."""
    rows = torch.arange(len(federation))
    chunks = rows.split(chunk_size(run.models, federation.train))
    matrices = [compute.loss_matrix(run.models, federation.train.take(some)) for some in chunks]
    return float(torch.cat(matrices).min(1).values.mean())


def chunk_size(bank, clients, device="cpu"):
    """How many clients make a batch of about the size of the cache, or of memory on a GPU.

    A client is counted with its inputs as floats, what the layers say of them (under all models of
    the bank for the first, and there and back in training), and three models: where it starts, its
    gradient, and where it ends.

    Parameters
    ----------
    bank : Bank
        The models it is sent.
    clients : Clients
        Clients on which they work.
    device : torch.device or str

    Returns
    -------
    int
        Between 1 and 256 on a CPU, where it is a matter of speed alone; at most a sixteenth of the
        free memory in any case.
    """
    points, numbers = clients.y.shape[1], clients.x[0, 0].numel()
    said = compute.activations(bank.model, clients.take([0]).inputs(bank.dtype)[0, :1].cpu())
    model = sum(p.numel() for p in bank.model.parameters()) * bank.dtype.itemsize
    one = points * (numbers + (2 + len(bank)) * said) * bank.dtype.itemsize + 3 * model
    room = free_memory(device) / 16
    if torch.device(device).type == "cpu":
        room = min(room, CACHE)
    return int(min(max(room // one, 1), MOST))


def round_trip(algorithm, state, clients, device="cpu", *, keep=True):
    """One round trip of any algorithm: plan, client step in chunks, absorb.

    Parameters
    ----------
    algorithm, state
        Settings and the state to start from.
    clients : Clients
        All clients of the federation, row i holding the client with id i.
    device : torch.device or str
    keep : bool
        True: the replies hold the clients' models, to be looked at. False: an algorithm that has
        ``gather`` drops them as they are summed.

    Returns
    -------
    state, jobs, replies
        The next state, and what travelled, with the value ``sound`` for each client: whether its
        models are finite. The state's round is over when its ``round`` has grown.
    """
    jobs = algorithm.plan(state)
    sent = jobs.to(device)
    chunks = torch.arange(len(jobs.clients)).split(chunk_size(jobs.bank, clients, device))

    def work(rows):
        part = sent.take(rows)
        return algorithm.client_step(part, clients.take(part.clients).to(device))

    parts, sums, gathers = [], None, hasattr(algorithm, "gather")
    for part in _in_order(work, chunks, device):
        if gathers:
            sums = algorithm.gather(state, part, sums)
        parts.append(part.checked(keep=keep or not gathers).to("cpu"))
    replies = wire.Replies.join(parts)
    if gathers:
        return algorithm.absorb(state, replies, sums.to("cpu")), jobs, replies
    return algorithm.absorb(state, replies), jobs, replies


def _in_order(work, chunks, device):
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


def _placed(clients, device):
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


def one_more(done, federation, trip):
    """A run and one round more.

    Parameters
    ----------
    done : Run
    federation : Federation or None
        What the models are scored on; None where nobody has all data, then they are not.
    trip : callable
        From a state to the next state, the jobs and the replies, as :func:`round_trip`.

    Raises
    ------
    Diverged
        If a loss or a model became infinite or NaN.
    """
    started, down, up = time.perf_counter(), 0, 0
    state = done.state
    while state.round == done.state.round:
        state, jobs, replies = trip(state)
        sent, answered = wire.traffic(jobs, replies)
        down, up = down + sent, up + answered
    losses = replies.values["loss"]
    sound, what = losses.isfinite(), "loss"
    if sound.all() and not banks.finite(state.bank).all():
        sound, what = replies.values["sound"], "model"
    if not sound.all():
        client = int(replies.clients[~sound][0])
        raise Diverged(
            f"round {state.round}: the {what} of client {client} is not finite; the step size "
            f"{_step_sizes(done.algorithm)} is probably too large. Everything up to round "
            f"{done.state.round} is in this error's .run",
            done,
        )
    record = {"round": state.round, "train_loss": float(losses.mean()), "clients": len(losses)}
    if federation is not None:
        quality = evaluation.score(done.algorithm, state, federation)
        record["accuracy" if federation.classes else "error"] = float(quality.mean())
        if federation.clusters is not None:
            found = evaluation.hard(state.assignments)
            found = evaluation.identity_accuracy(found, federation.clusters)
            record["identity_accuracy"] = found
    if hasattr(state, "empty"):
        record["empty"] = int((state.empty > 0).sum())
    record |= {"bytes_down": down, "bytes_up": up, "seconds": time.perf_counter() - started}
    return Run(done.algorithm, done.seed, done.data, state, [*done.history, record])


def _step_sizes(algorithm):
    """The step size of each local solver among the settings, in words."""
    solvers = [value for value in vars(algorithm).values() if hasattr(value, "step_size")]
    return " or ".join(str(size) for size in dict.fromkeys(s.step_size for s in solvers))


def _essence(run):
    """What must agree for one run to go on from another, each as one line of text."""
    parameters = run.models.tensors.items()  # a printed model need not show shapes and types
    form = {name: (tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in parameters}
    essence = {"algorithm": type(run.algorithm).__name__} | vars(run.algorithm)
    essence |= {"parameters": form, "seed": run.seed, "data": run.data}
    return {name: " ".join(repr(value).split()) for name, value in essence.items()}


def _resume(checkpoint, fresh, rounds):
    found = Run.load(checkpoint)
    was, now = _essence(found), _essence(fresh)
    for name, value in now.items():
        if was.get(name) != value:
            raise ValueError(
                f"{checkpoint} belongs to another run: its {name} is {was.get(name)}, not "
                f"{value}; name another file, or delete this one to start anew"
            )
    if found.state.round > rounds:
        raise ValueError(
            f"{checkpoint} is {found.state.round} rounds into its run, more than rounds={rounds}"
        )
    return found


def named_device(name):
    """The device with this name; "auto" as in :func:`run`."""
    if name == "auto":
        mps = "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device("cuda" if torch.cuda.is_available() else mps)
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device must be 'auto' or a name torch knows, got {name!r}") from error


def _somebody_watches():
    """Tell a terminal or a live notebook (True) from an executed page, a test or a log (False).

    A front end with a person in front of it lets the kernel ask questions; programs that execute
    notebooks do not.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel"):
        return bool(getattr(shell.kernel, "_allow_stdin", True))
    return sys.stderr.isatty()
