"""IFCA with server momentum: the server adds up its own steps, as FedAvgM does for one model."""

from dataclasses import dataclass, fields, replace

import clusterfl_core as cf


@dataclass(frozen=True)
class State(cf.ifca.State):
    """What IFCA knows, and the step that the server made last for each model."""

    velocity: cf.banks.Bank = None


@dataclass(frozen=True)
class MomentumIFCA(cf.IFCA):
    """The settings of IFCA, and beta, what is kept of the last step."""

    beta: float = 0.5

    def init(self, federation, seed):
        """IFCA's start, at rest."""
        first = super().init(federation, seed)
        own = {one.name: getattr(first, one.name) for one in fields(first)}
        return State(**own, velocity=first.bank.map(lambda t: t * 0))

    def absorb(self, state, parts):
        """IFCA's step, and beta times the one before."""
        after = super().absorb(state, parts)
        step = state.velocity.map(
            lambda kept, new, old: self.beta * kept + new - old, after.bank, state.bank
        )
        bank = state.bank.map(lambda old, move: old + move, step)
        return replace(after, bank=bank, velocity=step)
