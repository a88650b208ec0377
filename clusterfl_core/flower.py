"""The same algorithms in Flower: a server and clients that are separate programs.

Flower (https://flower.ai) carries messages between a server and clients on other machines. Here is
what an algorithm of this library needs to be carried, and nothing of any algorithm: the server
plans and absorbs, each client does the same ``client_step`` that :func:`clusterfl_core.run` does
for many clients at once, on a batch of one.

* :func:`server_app` and :func:`client_app` make Flower's two programs. They alone need the package
  ``flwr``: ``pip install "clusterfl_core[flower]"``. :func:`commands` says how to start them.
* :func:`serve` is the server's loop, :func:`hello` and :func:`work` the client's answers. They talk
  of PARCELS and can be run without Flower. A parcel is a dict of four dicts: ``arrays``, rows of
  parameters by name; ``numbers``; ``values`` of Jobs or Replies, and their ``types``.

What travels: a client is first asked how many points it holds. In each round trip it is sent the
models that ``plan`` chose for it, all parameters of a model as one row, and numbers it found
before. It answers with models and numbers. A model that a client kept is not sent again: the server
names it by a hash, and a client that lost it says so and is sent it anew.

A client that is away, raises, or sends what cannot be averaged is left out of the round trip, and
the round's record says who and why. What is finite and of the right form is believed: this is no
defence against clients that lie.

A network of two clients that is a dict, to show all that a network must do:

>>> import torch
>>> import clusterfl_core as cf
>>> theta = torch.tensor([[3.0, 0.0], [-3.0, 0.0]])
>>> federation = cf.populations.regression(theta, clients=2, points=20, noise=0.1)
>>> settings = cf.IFCA(cf.models.LinearRegression(2), clusters=2, local=cf.LocalSGD(5, 0.1))
>>> class Dict:
...     def nodes(self):
...         return [7, 8]
...     def ask(self, kind, parcels, timeout):
...         return {node: self.one(node - 7, kind, parcel) for node, parcel in parcels.items()}
...     def one(self, client, kind, parcel):
...         own = federation.train.take([client])
...         return work(settings, own, parcel, {}) if kind == "train" else hello(settings, own)
>>> far = serve(Dict(), settings, rounds=3, clients=2)
>>> near = cf.run(settings, federation, rounds=3)
>>> torch.equal(far.models.flatten(), near.models.flatten())
True
"""

import hashlib
import importlib
import ipaddress
import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import torch
from torch.nn.functional import pad

from clusterfl_core import check, door, simulation
from clusterfl_core.banks import Bank
from clusterfl_core.clients import Federation
from clusterfl_core.contract import Jobs, Replies, Unusable

__all__ = [
    "Enrolment", "GridLink", "Server", "client_app", "commands", "hello", "serve", "server_app",
    "work",
]  # fmt: skip

KEPT = "kept"  # the name of the one array that a client remembers

# ---------------------------------------------------------------- parcels


def rows_of(bank, names=None):
    """The parameters of each model, or those with these names, as one row: ndarray [k, p]."""
    chosen = [t.flatten(1) for n, t in bank.tensors.items() if names is None or n in names]
    return torch.cat(chosen, 1).numpy()


def tensors_of(model, rows, names=None):
    """The inverse of :func:`rows_of`: a dict of tensors [k, ...] for this architecture."""
    shapes = {n: p.shape for n, p in model.named_parameters() if names is None or n in names}
    parts = torch.as_tensor(rows).split([shape.numel() for shape in shapes.values()], 1)
    return {n: part.unflatten(1, shapes[n]) for n, part in zip(shapes, parts, strict=True)}


def name_of(row):
    """What the server calls a model that a client keeps: a hash of its bytes."""
    return hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest()


def drawn_row(model, row, seed):
    """The parameters of this row of ``Bank.fresh(model, ..., seed)``: ndarray [1, p]."""
    return rows_of(Bank.fresh(model, row + 1, seed).take([row]))


def job_parcel(jobs, row, points, *, with_kept):
    """What the client in this row of all jobs is sent, with or without the model that it kept.

    It pads its data to so many ``points``, n_max, for on them depends how it computes. Among the
    numbers, ``where`` says which models of the server's bank these are.
    """
    where = jobs.models[row].tolist()
    numbers = {"seed": int(jobs.seed), "round": int(jobs.round), "points": points}
    arrays = {}
    if where:
        numbers["where"] = where
        sent = jobs.bank.take(where)
        own = [name for name in sent.tensors if name not in jobs.shared]
        arrays["models"] = rows_of(sent, own)
        if jobs.shared:  # one copy of what all models have in common
            arrays["common"] = rows_of(sent.take([0]), jobs.shared)
            numbers["shared"] = list(jobs.shared)
    if jobs.kept:
        one = rows_of(jobs.kept.take([row]))
        numbers["name"] = name_of(one)
        if with_kept:
            arrays[KEPT] = one
        elif jobs.fresh is not None:
            numbers["fresh"] = jobs.fresh
    return {"arrays": arrays, "numbers": numbers, **_packed(jobs.values, row)}


def _packed(values, row):
    """The values of one client as numbers, and their types and shapes in words."""
    own = {name: value[row] for name, value in values.items()}

    def numbers(value):
        parts = torch.view_as_real(value.contiguous()) if value.is_complex() else value
        return parts.reshape(-1).tolist() if parts.ndim else parts.item()

    types = {n: " ".join([str(v.dtype)[6:], *map(str, v.shape)]) for n, v in own.items()}
    return {"values": {name: numbers(value) for name, value in own.items()}, "types": types}


def _unpacked(parcel):
    found = {}
    for name, numbers in parcel["values"].items():
        word, *shape = parcel["types"][name].split()
        kind = getattr(torch, word, None)
        if not isinstance(kind, torch.dtype):
            raise TypeError(f"{name} is of type {word!r}, which torch does not have")
        value = torch.tensor(numbers, dtype=kind.to_real() if kind.is_complex else kind)
        value = torch.view_as_complex(value.reshape(-1, 2)) if kind.is_complex else value
        found[name] = value.reshape(1, *map(int, shape))
    return found


NOTHING = {"arrays": {}, "numbers": {}, "values": {}, "types": {}}


# ---------------------------------------------------------------- the client


def hello(algorithm, clients):
    """What a client says of itself when it joins: a parcel of numbers only.

    ``clients`` are Clients, this one alone; ``algorithm`` its settings: the server refuses a client
    with others.
    """
    if len(clients) != 1:
        raise ValueError(f"load must give the data of one client, got {len(clients)}")
    numbers = {"count": int(clients.counts[0]), "points": clients.y.shape[1]}
    numbers |= {"client": int(clients.ids[0]), "settings": _settings(algorithm)}
    return NOTHING | {"numbers": numbers}


def _settings(algorithm):
    return " ".join(repr(algorithm).split())


def work(algorithm, clients, parcel, memory):
    """One client's answer to one job.

    Parameters
    ----------
    algorithm, clients
        As in :func:`hello`.
    parcel : dict
        From the server.
    memory : dict of ndarray
        What the client keeps between its jobs: the models of its last answer; changed here.

    Returns
    -------
    dict of dict
        A parcel again. With ``lost`` among its ``numbers``: the client has not kept the model that
        the server names.
    """
    arrays, numbers = parcel["arrays"], parcel["numbers"]
    kept = None
    if "name" in numbers:
        known = arrays.get(KEPT, memory.get(KEPT, ()))
        named = [known[i : i + 1] for i in range(len(known))]
        kept = next((one for one in named if name_of(one) == numbers["name"]), None)
        if kept is None and "fresh" in numbers:
            drawn = drawn_row(algorithm.model, numbers["fresh"], numbers["seed"])
            kept = drawn if name_of(drawn) == numbers["name"] else None
        if kept is None:
            return NOTHING | {"numbers": {"lost": True}}
    jobs = _jobs(algorithm.model, parcel, kept, clients.ids)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as run does for each batch: several threads add in another order
    try:
        replies = algorithm.client_step(jobs, padded(clients, numbers["points"]))
    finally:
        torch.set_num_threads(threads)
    answer = {} if replies.bank is None else {"models": rows_of(replies.bank)}
    if kept is not None:
        memory[KEPT] = answer["models"]
    return NOTHING | {"arrays": answer, **_packed(replies.values, 0)}


def _jobs(model, parcel, kept, ids):
    """Jobs of one client. Models it was not sent are NaN, so that no step can use one unseen."""
    arrays, numbers = parcel["arrays"], parcel["numbers"]
    where, shared = list(numbers.get("where", ())), tuple(numbers.get("shared", ()))
    parameters, parts, bank = dict(model.named_parameters()), {}, {}
    if where:
        parts = tensors_of(model, arrays["models"], parameters.keys() - set(shared))
    if shared:
        parts |= tensors_of(model, arrays["common"], shared)
    for name, p in parameters.items():
        size = (max(where, default=-1) + 1, *p.shape)
        bank[name] = torch.full(size, math.nan, dtype=p.dtype)
        if where:
            bank[name][where] = parts[name].to(p.dtype)
    models = torch.tensor([where], dtype=torch.int64)
    kept = None if kept is None else Bank(model, tensors_of(model, kept))
    seed, now, values = numbers["seed"], numbers["round"], _unpacked(parcel)
    return Jobs(seed, now, ids, Bank(model, bank), models, kept, values, shared)


def padded(clients, points):
    """The same clients with rows of zeros up to this length."""
    more = points - clients.y.shape[1]
    x = pad(clients.x, (0, 0) * (clients.x.ndim - 2) + (0, more))
    return replace(clients, x=x, y=pad(clients.y, (0, more)))


# ---------------------------------------------------------------- the server


@dataclass(frozen=True)
class Enrolment:
    """What the server knows of a federation whose data it does not have.

    ``counts`` (LongTensor [m]) are n_i, as the clients told it, and ``points`` n_max, the longest
    padded length among them.
    """

    counts: torch.Tensor
    points: int

    def __len__(self):
        return len(self.counts)

    @property
    def train(self):
        """Where ``init`` of an algorithm looks for ``counts``."""
        return self

    def fingerprint(self):
        """Stands for the data in a checkpoint: a hash of what is known of it."""
        known = f"{self.counts.tolist()} {self.points}"
        return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()


def serve(
    link,
    algorithm,
    rounds,
    *,
    clients,
    seed=0,
    federation=None,
    checkpoint=None,
    timeout=600,
    members=None,
):
    """The server: run an algorithm on clients that are elsewhere.

    All clients must be there at the start. Later any may be away, but never all of them.

    Parameters
    ----------
    link
        The network: ``nodes()`` gives the ids of the nodes that are there now, and
        ``ask(kind, parcels, timeout)`` the answers to a dict of parcels by node: a parcel, or a
        sentence that says why there is none. ``kind`` is "query" for :func:`hello` and "train" for
        :func:`work`. :class:`GridLink` is Flower's.
    algorithm, rounds, seed, checkpoint
        As in :func:`clusterfl_core.run`. A checkpoint of one engine is good for the other if
        ``federation`` is given.
    clients : int
        m, how many clients there are.
    federation : Federation, optional
        In a laboratory, where all data is known: each round is scored on it, as in ``run``.
    timeout : float
        Seconds to wait for clients at the start, and for the answers of each round trip.
    members : dict of int to int, optional
        Which client each node is, where nodes prove who they are with a registered key. Other
        nodes are not talked to. None: a node is believed, and the last one to name a client is
        that client, so that a client started anew is known again.

    Returns
    -------
    Run
        As of ``run``. The record of each round has ``missing``, a list of who did not take part
        in which round trip, and why, in words.

    Raises
    ------
    ValueError
        If an argument is out of bounds, the checkpoint is of another run, or the clients' counts
        are not those of the federation.
    RuntimeError
        If clients are not there in time, or not one of those asked gave an answer that can be used.
        The checkpoint then holds all rounds before.
    """
    clients = check.whole("clients", clients)
    rounds, seed = check.whole("rounds", rounds), check.whole("seed", seed, 0)
    timeout = check.number("timeout", timeout, "(0, inf)", "be a positive number of seconds")
    check.kind("federation", federation, Federation, none=True)
    server = Server(link, algorithm, clients, timeout, members)
    enrolment = server.wait()
    if federation is not None and not torch.equal(federation.train.counts, enrolment.counts):
        raise ValueError(
            f"the clients hold {enrolment.counts.tolist()} points, those of the federation "
            f"{federation.train.counts.tolist()}"
        )
    known = enrolment if federation is None else federation
    done = simulation.begin(algorithm, known, rounds, seed, checkpoint)
    while done.state.round < rounds:
        server.missing, server.trips = [], 0
        done = simulation.extended(done, federation, server.trip)
        done.history[-1]["missing"] = server.missing
        if checkpoint is not None:
            done.save(checkpoint)
    return done


class Server:
    """The server's side of the conversation: who is where, who holds what, who is missing."""

    def __init__(self, link, algorithm, clients, timeout, members):
        self.link, self.algorithm, self.clients = link, algorithm, clients
        self.timeout, self.members = timeout, members
        self.nodes = {}  # client -> the node that is this client now
        self.met = set()  # nodes that have said who they are
        self.refused = {}  # what a node said that was not believed, in words
        self.counts, self.points = {}, {}  # of each client, as it first said
        self.holds = {}  # client -> (node, names of the models it keeps there)
        self.missing, self.trips = [], 0
        self.forms = Counter()  # of the answers that were absorbed, see _form

    def wait(self):
        """Wait until all clients are there: a :class:`Enrolment`."""
        end = time.monotonic() + self.timeout
        while True:
            self.greet(max(end - time.monotonic(), 0.1))
            away = [i for i in range(self.clients) if i not in self.nodes]
            if not away:
                break
            if time.monotonic() > end:
                reasons = "".join(f"; {why}" for why in dict.fromkeys(self.refused.values()))
                raise RuntimeError(
                    f"{len(away)} of {self.clients} clients were not there within {self.timeout:g} "
                    f"seconds: {away}{reasons}"
                )
            time.sleep(min(self.timeout / 10, 1))
        counts = torch.tensor([self.counts[i] for i in range(self.clients)])
        return Enrolment(counts, max(self.points.values()))

    def greet(self, timeout):
        """Ask nodes that are new who they are, and forget those that are gone."""
        there = [n for n in self.link.nodes() if self.members is None or n in self.members]
        self.nodes = {client: node for client, node in self.nodes.items() if node in there}
        self.refused = {node: why for node, why in self.refused.items() if node in there}
        self.met &= set(there)
        new = [node for node in there if node not in self.met]
        asked = dict.fromkeys(new, NOTHING)
        for node, said in (self.link.ask("query", asked, timeout) if new else {}).items():
            if isinstance(said, str):
                self.refused[node] = f"node {node} {said}"  # it is asked again before each trip
                continue
            self.met.add(node)
            numbers, why = said["numbers"], self.doubt(node, said["numbers"])
            if why:
                self.refused[node] = why
                continue
            client = numbers["client"]
            self.refused.pop(node, None)
            self.nodes[client] = node
            self.counts[client], self.points[client] = numbers["count"], numbers["points"]

    def doubt(self, node, numbers):
        """Why a node is not believed to be the client it names, or None."""
        try:
            client, count, points = (int(numbers[n]) for n in ("client", "count", "points"))
        except (KeyError, TypeError, ValueError):
            return f"node {node} does not say which client it is"
        if not 0 <= client < self.clients:
            return f"node {node} calls itself client {client}, there are 0 to {self.clients - 1}"
        if self.members is not None and self.members[node] != client:
            return f"node {node} calls itself client {client}, its key is {self.members[node]}'s"
        if not 1 <= count <= points:
            return f"client {client} says it has {count} points in {points} rows"
        if self.counts.get(client, count) != count or self.points.get(client, points) != points:
            return f"client {client} came back with {count} points, it had {self.counts[client]}"
        if numbers.get("settings") != _settings(self.algorithm):
            return f"client {client} runs other settings: {str(numbers.get('settings'))[:200]}"
        return None

    def trip(self, state):
        """One round trip, as :func:`clusterfl_core.simulation.play` wants it."""
        self.trips += 1
        self.greet(self.timeout)
        kind = type(self.algorithm).__name__
        jobs = door.check_jobs(kind, self.algorithm.plan(state), self.clients)
        answers, before = self.ask(jobs), len(self.missing)
        whole = {}
        for client in jobs.clients.tolist():
            answer = answers[client]
            whole[client] = answer if isinstance(answer, str) else _reply(answer, client, jobs.bank)
        forms = Counter(_form(answer) for answer in whole.values() if not isinstance(answer, str))
        usual = max(forms, key=lambda form: (forms[form], self.forms[form]), default=None)
        parts = []
        for client, answer in whole.items():
            if not isinstance(answer, str) and _form(answer) != usual:
                answer = f"sent {_form(answer)}, the others {usual}"
            if isinstance(answer, str):
                self.miss(client, answer)
                continue
            parts.append(answer)
            if jobs.kept:
                rows = rows_of(answer.bank)
                names = {name_of(rows[i : i + 1]) for i in range(len(rows))}
                self.holds[client] = (self.nodes[client], names)
        after = None
        while parts and after is None:
            one = jobs.take((jobs.clients == parts[0].clients).nonzero()[:, 0])
            door.check_replies(kind, parts[0], one)  # the others have the same form
            try:
                after = self.algorithm.absorb(state, door.Parts(parts))
            except Unusable as error:  # the others' answers are absorbed without it
                rest = [part for part in parts if int(part.clients) != error.client]
                if len(rest) == len(parts):
                    raise
                self.miss(error.client, error.why)
                parts = rest
        if after is None:
            why = "; ".join(f"client {m['client']} {m['why']}" for m in self.missing[before:])
            raise RuntimeError(
                f"round {state.round + 1}: none of the {len(whole)} clients asked gave an answer "
                f"that can be used: {why}"
            )
        self.forms[usual] += len(parts)
        replies = Replies.join(parts)
        asked = [row for row, i in enumerate(jobs.clients.tolist()) if i in self.nodes]
        sent = len(replies.bank) if replies.bank else 0
        return after, jobs.take(asked), replies, replies.sound(), sent

    def miss(self, client, why):
        """Note that a client takes no part in this round trip, and why, in words."""
        self.missing.append({"client": client, "trip": self.trips, "why": why})
        self.holds.pop(client, None)

    def ask(self, jobs):
        """What each client answers to its job: a parcel, or why there is none."""
        points, rows = max(self.points.values()), dict(enumerate(jobs.clients.tolist()))
        found, parcels = {}, {}
        holders = [self.holds.get(client, (None, ())) for client in rows.values()]
        first = None
        if jobs.fresh is not None and any(not names for _node, names in holders):
            first = name_of(drawn_row(self.algorithm.model, jobs.fresh, jobs.seed))
        for row, client in rows.items():
            node = self.nodes.get(client)
            if node is None:
                found[client] = "; ".join(["is not connected", *self.refused.values()])
                continue
            name = name_of(rows_of(jobs.kept.take([row]))) if jobs.kept else None
            where, names = self.holds.get(client, (None, ()))
            known = name in names if where == node else name is not None and name == first
            parcels[node] = job_parcel(jobs, row, points, with_kept=not known)
        answers = self.link.ask("train", parcels, self.timeout)
        lost = {n for n, a in answers.items() if not isinstance(a, str) and "lost" in a["numbers"]}
        again = {
            self.nodes[client]: job_parcel(jobs, row, points, with_kept=True)
            for row, client in rows.items()
            if self.nodes.get(client) in lost
        }
        if again:
            answers |= self.link.ask("train", again, self.timeout)
        late = f"did not answer within {self.timeout:g} seconds"
        for client in rows.values():
            if client not in found:
                found[client] = answers.get(self.nodes[client], late)
        return found


def _reply(parcel, client, bank):
    """One client's reply, or why it cannot be used, in words."""
    try:
        values, rows, answer = _unpacked(parcel), parcel["arrays"].get("models"), None
        if rows is not None:
            size = sum(p.numel() for p in bank.model.parameters())
            kind = str(bank.dtype)[6:]
            if rows.ndim != 2 or rows.shape[1] != size or not len(rows):
                return f"sent models of shape {list(rows.shape)}, not of {size} numbers each"
            if str(rows.dtype) != kind:
                return f"sent models of {rows.dtype}, not {kind}"
            answer = Bank(bank.model, tensors_of(bank.model, rows.copy()))
            if not torch.isfinite(answer.flatten()).all():
                return "sent a model that is not finite"
        for name, value in values.items():
            if not torch.isfinite(value).all():
                return f"sent a {name} that is not finite"
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        return f"sent what cannot be read: {type(error).__name__}: {str(error)[:200]}"
    return Replies(torch.tensor([client]), answer, values)


def _form(replies):
    """How many models a client sent, and which values of which type and shape, in words."""
    values = (
        f"{name} ({str(value.dtype)[6:]} {list(value.shape[1:])})"
        for name, value in sorted(replies.values.items())
    )
    sent = len(replies.bank) if replies.bank else 0
    return f"{sent} models, {', '.join(values)}"


# ---------------------------------------------------------------- Flower


def commands(clients, *, host="127.0.0.1", port=8000, tls=None):
    """Command lines that start Flower's programs: the SuperLink, then one SuperNode a client.

    The server's own machine runs the first, the machine of client i the one with its number: a list
    of lists of words.

    Parameters
    ----------
    clients : int
        m.
    host : str
        The address of the SuperLink. Without ``tls`` it must be this machine's loopback, else
        ValueError: nothing is encrypted then and nobody proves who he is.
    port : int
        Where the SuperLink listens. Node i serves its own helper process at ``port + 1 + i``, on
        loopback.
    tls : path, optional
        A folder with ``ca.crt``, ``server.pem`` and ``server.key``, and for each client i its
        private key ``client-i``, whose public key is registered with ``flwr supernode register``.
    """
    clients = check.whole("clients", clients)
    port = check.whole("port", port, 1, 65535 - clients)
    check.kind("tls", tls, str, PathLike, none=True)
    if tls is None and not _is_loopback(check.text("host", host)):
        raise ValueError(
            f"host must be 127.0.0.1 or another loopback address without tls, got {host!r}: "
            "models would travel unencrypted between clients that nobody has checked"
        )
    server, folder = ["flower-superlink", "--host", host, "--port", str(port)], Path(tls or "")
    node = ["flower-supernode", "--superlink", f"{host}:{port}"]
    if tls is None:
        server, node = [*server, "--insecure"], [*node, "--insecure"]
    else:
        for flag, file in (("ca-cert", "ca.crt"), ("cert", "server.pem"), ("key", "server.key")):
            server += [f"--ssl-{flag}file", str(folder / file)]
        server.append("--enable-supernode-auth")
        node += ["--root-certificates", str(folder / "ca.crt")]
    lines = [server]
    for i in range(clients):
        own = ["--port", str(port + 1 + i), "--node-config", f"partition-id={i}"]
        key = ["--auth-supernode-private-key", str(folder / f"client-{i}")]
        lines.append(node + own + (key if tls is not None else []))
    return lines


def _is_loopback(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class GridLink:
    """Flower's network (a ``flwr.serverapp.Grid``) as :func:`serve` needs it."""

    def __init__(self, grid):
        self.grid = grid

    def nodes(self):
        """Ids of the nodes that are there now."""
        return list(self.grid.get_node_ids())

    def ask(self, kind, parcels, timeout):
        """Send parcels and wait for the answers; see :func:`serve`."""
        messages = [
            _flwr("app").Message(
                to_records(parcel), dst_node_id=node, message_type=kind, group_id=str(node)
            )
            for node, parcel in parcels.items()
        ]
        found = {}
        for reply in self.grid.send_and_receive(messages, timeout=timeout):
            if reply.has_error():  # the SuperLink itself may have sent it, for a dead node
                reason = " ".join(str(reply.error.reason).split())[:200]
                why = f"gave no answer (Flower's error {reply.error.code}): {reason}"
                found[int(reply.metadata.group_id)] = why
            else:
                found[reply.metadata.src_node_id] = from_records(reply.content)
        return found


def to_records(parcel):
    """A parcel as Flower's RecordDict."""
    flwr = _flwr("app")
    arrays = flwr.ArrayRecord({name: flwr.Array(a) for name, a in parcel["arrays"].items()})
    words = {name: flwr.ConfigRecord(parcel[name]) for name in NOTHING if name != "arrays"}
    return flwr.RecordDict({"arrays": arrays, **words})


def from_records(content):
    """The inverse of :func:`to_records`, or why it cannot be read, in words."""
    try:
        words = {name: dict(content[name]) for name in NOTHING if name != "arrays"}
        return {"arrays": {n: a.numpy() for n, a in content["arrays"].items()}, **words}
    except Exception as error:  # the bytes come from elsewhere and may be anything
        return f"sent what cannot be read: {type(error).__name__}: {str(error)[:200]}"


def _flwr(part):
    """A module of Flower, or one sentence that says how to get it."""
    try:
        return importlib.import_module(f"flwr.{part}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'this needs Flower ({error}): pip install "clusterfl_core[flower]"'
        ) from error


def server_app(algorithm, rounds, *, then=None, **options):
    """Flower's server program, a ``flwr.serverapp.ServerApp``.

    ``algorithm``, ``rounds`` and ``options`` are as in :func:`serve`. ``rounds``, ``seed``,
    ``checkpoint`` and ``timeout`` can be set anew for a run, with ``flwr run --run-config``.
    ``then`` is given the Run at its end, for example to save it.
    """
    app = _flwr("serverapp").ServerApp()

    @app.main()
    def main(grid, context):
        own = {"rounds": rounds, **options}
        names = ("rounds", "seed", "checkpoint", "timeout")
        own |= {name: context.run_config[name] for name in names if name in context.run_config}
        done = serve(GridLink(grid), algorithm, **own)
        if then is not None:
            then(done)

    return app


def client_app(algorithm, load):
    """Flower's client program, a ``flwr.clientapp.ClientApp``.

    ``load`` gives the data of the client with a number, Clients with one client. The number is
    ``partition-id`` of the node's configuration. ``algorithm`` is the server's.
    """
    app, flwr = _flwr("clientapp").ClientApp(), _flwr("app")

    def own(context):
        number = int(context.node_config["partition-id"])
        return replace(load(number), ids=torch.tensor([number]))

    @app.query()
    def query(message, context):
        return flwr.Message(to_records(hello(algorithm, own(context))), reply_to=message)

    @app.train()
    def train(message, context):
        remembered = context.state.array_records.get(KEPT, {})
        memory = {name: array.numpy() for name, array in remembered.items()}
        answer = work(algorithm, own(context), from_records(message.content), memory)
        context.state[KEPT] = flwr.ArrayRecord({n: flwr.Array(a) for n, a in memory.items()})
        return flwr.Message(to_records(answer), reply_to=message)

    return app
