"""CFL, clustered federated learning (Sattler, Müller, Samek; 2019).

m clients first train one model together. Where that has come to rest, the clients may still pull
in different directions: their weight updates cancel in the mean but do not vanish. Then no one
model fits all, and the *cosine similarity* of the updates tells who belongs together:

    alpha_ij = <Delta theta_i, Delta theta_j> / (‖Delta theta_i‖ ‖Delta theta_j‖)       (44)

The server splits the clients in two so that the most similar pair it tears apart is as dissimilar
as possible (25), and each half goes on by itself, splits again or comes to rest for good. The
splits form a *parameter tree*; its leaves are the clusters. One round of all leaves is Algorithm 5:

* each client trains the model of its own leaf and sends its update Delta theta_i;
* the server, leaf by leaf, either splits it or moves its model by the mean of its updates.

The server never sees data. It need not even see the updates: all it does works just as well in
coordinates that only the clients know (section V-B, :mod:`clusterfl_core.algorithms.secret`).

>>> import torch
>>> import clusterfl_core as cf
>>> theta = torch.tensor([[3.0, 0.0], [-3.0, 0.0]])
>>> federation = cf.populations.regression(theta, clients=6, points=40, noise=0.1)
>>> model, sgd = cf.models.LinearRegression(2), cf.LocalSGD(5, 0.05)
>>> settings = cf.CFL(model, eps1=0.02, eps2=0.2, gamma_max=0.1, local=sgd)
>>> run = cf.run(settings, federation, rounds=20)
>>> run.assignments.tolist()
[0, 0, 0, 1, 1, 1]
>>> [node.clients.tolist() for node in run.state.tree]
[[0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5]]
>>> settings.assign(run.state, federation.test)  # new clients, one of each cluster
[(0, 1), (0, 2)]
"""

from dataclasses import dataclass, field, replace

import torch
from torch import nn

from clusterfl_core import compute, contract, evaluation
from clusterfl_core.algorithms.secret import Secret
from clusterfl_core.banks import Bank
from clusterfl_core.check import items, keep, kind, number, one_of, shown, solver, tensor, whole
from clusterfl_core.contract import Replies
from clusterfl_core.similarity import cosine_similarity, cross_similarity, optimal_bipartition
from clusterfl_core.solvers import LocalSGD

__all__ = ["CFL", "Node", "Secret", "State", "cosine_similarity", "cross_similarity", "joined"]
__all__ += ["nearer_children", "newest", "optimal_bipartition", "own_leaf", "path_models"]
__all__ += ["weighted_mean"]


def weighted_mean(updates, counts):
    """The mean update of a cluster, ``sum_i |D_i| / |D_c| Delta theta_i`` (Algorithm 2, line 7).

    Of updates [b, p] with n_i = ``|D_i|`` points in ``counts`` [b]: Tensor [p]. Algorithm 5 prints
    the weights ``1 / |c|``; they agree where clients hold equally many points.
    """
    if not isinstance(updates, torch.Tensor) or updates.ndim != 2 or not len(updates):
        raise ValueError(f"updates must be a tensor [b, p], got {shown(updates)}")
    if kind("counts", counts, torch.Tensor).shape != updates.shape[:1] or not counts.min() > 0:
        raise ValueError(f"counts must be {len(updates)} positive numbers, got {shown(counts)}")
    total = torch.zeros_like(updates[0])
    # Client after client, one operation each: so every coordinate is rounded alike wherever it
    # stands, and permuted updates have exactly the permuted mean.
    shares = counts.to(torch.float64) / counts.sum()
    for share, update in zip(shares.tolist(), updates, strict=True):
        total += share * update
    return total


@dataclass(frozen=True)
class Node:
    """A cluster that training has come to, with the edge from its parent (section V-C).

    Parameters
    ----------
    parent : int
        Number of the parent in the tree; -1 for the root.
    clients : LongTensor [b]
        c_v, ids in the whole population, ascending.
    updates : Tensor [b, p] or None
        Delta_e (47): the updates these clients sent at the parent's theta*, in the same order and
        as the server saw them. None for the root.
    children : tuple of int
        Numbers of the two children; empty for a leaf.
    model : Bank or None
        theta*_v, a bank of one, as the server holds it. None for a leaf, whose model still moves.
    """

    parent: int
    clients: torch.Tensor
    updates: torch.Tensor = None
    children: tuple = ()
    model: Bank = None


@dataclass(frozen=True)
class State(contract.State):
    """What the server knows between two rounds.

    Parameters
    ----------
    bank : Bank
        The current models as the server holds them: P theta. One a leaf, and one more for
        each split that some client still has to answer for, see :meth:`CFL.absorb`.
    assignments : LongTensor [m]
        Which model of the bank is each client's: its leaf.
    nodes : tuple of int
        The node of the tree that each model of the bank belongs to.
    counts : LongTensor [m]
        n_i, the paper's ``|D_i|``, which clients tell the server when they join.
    tree : tuple of Node
        The parameter tree. Node 0 is the root; a child's number is larger than its parent's.
    privacy : str or None
        What the clients do to their updates, see :class:`Secret`.
    heard : dict
        Of each leaf some of whose clients are silent, the newest answers since its last test: ids
        [b], updates [b, p] and what is compared [b, p]. Empty where everybody answers.
    """

    nodes: tuple
    counts: torch.Tensor
    tree: tuple
    privacy: str = None
    heard: dict = field(default_factory=dict)

    @property
    def models(self):
        """P^-1 of what the server holds, as only the clients can read it."""
        return Secret(self.privacy, self.seed).reveal(self.bank)


def path_models(state, path):
    """The models along a path of the tree, from the most general to the most special one.

    ``path`` names nodes, for example as :meth:`CFL.assign` does. A Bank of theta*_v of the inner
    nodes and the current model of a leaf, as the clients read them.
    """
    most = len(kind("state", state, State).tree) - 1
    path = [whole("path", v, 0, most) for v in items("path", path)]
    known = [v for v in path if state.tree[v].children or v in state.nodes]
    if known != path:
        raise ValueError(f"path must name nodes whose models the state has, got {path}")
    parts = [
        state.tree[v].model if state.tree[v].children else state.bank.take([state.nodes.index(v)])
        for v in path
    ]
    return Secret(state.privacy, state.seed).reveal(Bank.concatenate(parts))


def nearer_children(tree, v, updates):
    """For each update made at theta*_v, the child of v with the more similar one: list of int [b].

    Algorithm 4, lines 4 to 12: the larger of alpha_0 and alpha_1, the largest similarity of an
    update (a row of ``updates`` [b, p]) to those kept on either edge; ties go to the second child.
    (The paper prints v_1 and v_2 in lines 6 and 7 for the v_0 and v_1 of line 4.)
    """
    nodes = [kind("tree", node, Node) for node in items("tree", tree)]
    v = whole("v", v, 0, len(nodes) - 1)
    if not nodes[v].children:
        raise ValueError(f"v must be a node with children, got the leaf {v}")
    tensor("updates", updates, "b", tree[tree[v].children[0]].updates.shape[1])
    b, nearest = len(updates), []
    for child in tree[v].children:
        alpha = cosine_similarity(torch.cat([updates, tree[child].updates]))
        nearest.append(alpha[:b, b:].max(1).values)
    return torch.where(nearest[0] > nearest[1], *tree[v].children).tolist()


def own_leaf(state, federation):
    """Each client's accuracy with the model of its own leaf, on test data of its own (CFL, Fig. 8).

    Test clients who are not the training clients (:func:`clusterfl_core.evaluation.same_people`)
    have no leaf; each takes the model with the lowest loss on its own data.
    """
    evaluation.refuse_unknown(state, federation)
    if not evaluation.same_people(federation):
        return evaluation.lowest_loss(state, federation)
    judge = compute.accuracies if federation.classes else compute.mean_losses
    return judge(state.models.take(state.assignments), federation.test)


@dataclass(frozen=True)
class CFL:
    """Settings of the algorithm; ValueError if one lies outside its bounds.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture of every model.
    eps1 : float
        A cluster is near a stationary point if its mean update is shorter than this (32).
    eps2 : float
        Its clients disagree if the longest of their updates is longer than this (33).
    gamma_max : float
        In [0, 1). The angle a split asks for: its most similar torn pair must stand more than
        2 arcsin(gamma_max) apart (39). No true cluster is torn if no client's relative noise
        exceeds gamma_max. 0 allows every split but one through equal directions.
    local : LocalSGD
        What a client does in a round.
    similarity : {"updates", "gradients"}
        What the cosine similarities compare: weight updates (44), or full gradients of the
        client's loss at the model it received (13), which it then sends beside its update. The
        norms are those of the updates either way, as in Algorithm 5.
    privacy : {None, "permutation", "rotation"}
        What the clients do to all they send, see :class:`Secret`.
    quorum : float
        In (0, 1]. A cluster is tested, and so may split, once this share of its clients has
        answered since its last test. Only silent clients make a difference.
    """

    model: nn.Module
    eps1: float
    eps2: float
    gamma_max: float = 0.0
    local: LocalSGD = field(default_factory=LocalSGD)
    similarity: str = "updates"
    privacy: str = None
    quorum: float = 1.0

    test_protocol = staticmethod(own_leaf)

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        solver("local", self.local)
        keep(
            self,
            eps1=number("eps1", self.eps1, "(0, inf]", "be positive"),
            eps2=number("eps2", self.eps2, "(0, inf]", "be positive"),
            gamma_max=number("gamma_max", self.gamma_max, "[0, 1)"),
            quorum=number("quorum", self.quorum, "(0, 1]"),
        )
        one_of("similarity", self.similarity, "updates", "gradients")
        one_of("privacy", self.privacy, None, "permutation", "rotation")

    def init(self, federation, seed):
        """One fresh model, one cluster of all clients (Algorithm 5, line 3).

        The clients draw theta_0, as they draw P, and the server is given P theta_0: from theta_0
        and P theta_0 together it could read off a permutation.
        """
        m = len(federation)
        bank = Secret(self.privacy, seed).hide(Bank.fresh(self.model, 1, seed))
        root, nobody = Node(-1, torch.arange(m)), torch.zeros(m, dtype=torch.int64)
        return State(seed, 0, bank, nobody, (0,), federation.train.counts, (root,), self.privacy)

    def plan(self, state):
        """Server: every client works, on the model of its own leaf."""
        return state.jobs(torch.arange(len(state.assignments)))

    def client_step(self, jobs, clients):
        """Clients: undo P, train, send P (SGD(theta, D_i) - theta) (Algorithm 5, (1) and (46)).

        With ``similarity="gradients"`` each client sends two rows: its update, then its gradient.
        """
        secret = Secret(self.privacy, jobs.seed)
        start = secret.reveal(jobs.bank).take(jobs.models[:, 0])
        loss = compute.mean_losses(start, clients)
        answer = self.update(start, clients, jobs.key)
        if self.similarity == "gradients":
            x, mask = clients.inputs(start.dtype), clients.mask()
            slope = compute.client_gradients(start, x, clients.y, mask)
            pairs = torch.arange(2 * len(clients)).view(2, -1).T.flatten()
            answer = Bank.concatenate([answer, slope]).take(pairs)
        return Replies(clients.ids, secret.hide(answer), {"loss": loss})

    def update(self, start, clients, key):
        """Delta theta_i = SGD(theta, D_i) - theta of each client (1): a bank of b."""
        return self.local.train(start, clients, key).map(torch.sub, start)

    def unpack(self, replies):
        """What the clients sent, in the coordinates of the server: two Tensors [b, p].

        Delta theta_i, and what the cosine similarities compare: the same or the gradients.
        """
        rows = replies.bank.flatten()
        return (rows, rows) if self.similarity == "updates" else (rows[0::2], rows[1::2])

    def bipartition(self, mean, updates, compared):
        """Whether a cluster splits, and how (Algorithm 5, lines 14 to 18).

        Its mean update [p] is given, and of each of its clients what :meth:`unpack` gives [b, p].
        None if it stays whole, else the rows of either half (two ndarrays of int). The order of the
        tests is the paper's: near a stationary point (32), clients not at rest (33), halves far
        enough apart for gamma_max (39). A single client has nobody to part from.
        """
        if len(updates) < 2:
            return None
        norm = torch.linalg.vector_norm
        near = norm(mean, dtype=torch.float64) < self.eps1
        disagree = norm(updates, dim=1, dtype=torch.float64).max() > self.eps2
        # NaN fails all three: a run that diverges is stopped with the client named, not here.
        if not (near and disagree and compared.isfinite().all()):
            return None
        alpha = cosine_similarity(compared)
        halves = optimal_bipartition(alpha)
        apart = ((1 - cross_similarity(alpha, *halves)) / 2) ** 0.5
        return halves if self.gamma_max < apart else None

    def absorb(self, state, parts):
        """Server: split a leaf, or move its model by its mean update (Algorithm 5, lines 10 to 23).

        In the round of a split the mean is NOT applied: both children start from the very theta*
        at which the updates were made. Algorithm 2 would first take the last step, which is
        shorter than eps1, and have the clients answer once more from where it leads. Without that
        step the norms (32) and (33), the similarities and the updates kept on the edges (47) all
        belong to one theta*, and no round is lost; Algorithm 5 gives the new clusters no mean to
        apply either. A leaf that does not split moves on, so it may be tested every round.

        Replies may be missing. A cluster moves by the mean of those who answered. Its tests wait
        for the quorum and take the newest answer of each client since the last test, so some may
        belong to a model a few steps older. A client that missed the split of its cluster stays at
        the parent and is sent the parent's theta*, until its answer says to which child it belongs
        (Algorithm 4) and completes that child's edge. (The paper has no silent clients.)
        """
        replies = Replies.join(parts)
        updates, compared = self.unpack(replies)
        tree, nodes = list(state.tree), list(state.nodes)
        models = {v: state.bank.take([row]) for row, v in enumerate(nodes)}
        stands = torch.tensor(nodes)[state.assignments]  # the node of each client
        heard = dict(state.heard)
        asked = stands[replies.clients]
        for v in state.nodes:
            here = (asked == v).nonzero()[:, 0]
            if not len(here):
                continue
            ids, sent = replies.clients[here], updates[here]
            if tree[v].children:
                stands[ids] = torch.tensor(nearer_children(tree, v, sent))
                for child in tree[v].children:
                    late = stands[ids] == child
                    tree[child] = joined(tree[child], ids[late], sent[late])
                    if child not in models:
                        models[child] = tree[child].model
                        nodes.append(child)
                continue
            mean = weighted_mean(sent, state.counts[ids])
            step = models[v].unflatten(mean[None])
            now = ids, sent, compared[here]
            if v in heard:
                ids, sent, _ = now = newest(heard.pop(v), now)
                mean = weighted_mean(sent, state.counts[ids])
            halves = None
            if len(ids) < self.quorum * len(tree[v].clients) - 1e-9:
                heard[v] = now
            else:
                halves = self.bipartition(mean, sent, now[2])
            if halves is None:
                models[v] = models[v].map(torch.add, step)
                continue
            children = (len(tree), len(tree) + 1)
            tree[v] = replace(tree[v], children=children, model=models[v])
            for child, half in zip(children, halves, strict=True):
                tree.append(Node(v, ids[half], sent[half]))
                models[child] = models[v]
                stands[ids[half]] = child
            # The first child takes over the row; v keeps one only if a client is left there.
            nodes[nodes.index(v)] = children[0]
            nodes += [children[1], v]
        nodes = [v for v in nodes if (stands == v).any()]
        row = {v: place for place, v in enumerate(nodes)}
        return state.next(
            bank=Bank.concatenate([models[v] for v in nodes]),
            nodes=tuple(nodes),
            assignments=torch.tensor([row[v] for v in stands.tolist()]),
            tree=tuple(tree),
            heard=heard,
        )

    def assign(self, state, clients):
        """Walk new clients down the tree (Algorithm 4).

        At each node a client trains theta*_v on its own data and moves to the child with the more
        similar update. Nothing in the state changes, and the b ``clients`` need not belong to the
        federation. A list of tuples of int: a path of nodes (numbers in ``state.tree``) for each
        client, from the root to a leaf.
        """
        secret = Secret(self.privacy, state.seed)
        paths = [[0] for _ in range(len(clients))]
        # A child's number is larger than its parent's, so one pass takes everybody to a leaf.
        for v, node in enumerate(state.tree):
            here = [i for i, path in enumerate(paths) if path[-1] == v]
            if not here or not node.children:
                continue
            start = secret.reveal(node.model).take([0] * len(here))
            update = self.update(start, clients.take(here), (state.seed, state.round))
            rows = secret.hide(update).flatten()
            for i, child in zip(here, nearer_children(state.tree, v, rows), strict=True):
                paths[i].append(child)
        return [tuple(path) for path in paths]


def newest(before, now):
    """Two sets of answers, ids and rows each, as one by id; where a client has two, the later."""
    stay = ~torch.isin(before[0], now[0])
    parts = [torch.cat([old[stay], new]) for old, new in zip(before, now, strict=True)]
    order = parts[0].argsort()
    return tuple(part[order] for part in parts)


def joined(node, clients, updates):
    """A node whose cluster, and the edge to it, more clients have joined."""
    clients, updates = newest((node.clients, node.updates), (clients, updates))
    return replace(node, clients=clients, updates=updates)
