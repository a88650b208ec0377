"""IFCA on models of two numbers."""

from clusterfl_core import check
from clusterfl_core.live.page import Laboratory, looks

__all__ = ["plane"]

_EDGE, _SIZE = 2.5, 340  # the still picture: models from -2.5 to 2.5, in so many pixels


def plane(
    truth=((-1.2, -0.6), (1.2, -0.6), (0.0, 1.2)),
    models=((-0.6, 0.3), (0.6, -0.2), (0.3, 0.9)),
    *,
    clients=6,
    points=8,
    noise=0.6,
    seed=0,
    task="",
    small=False,
):
    """IFCA on models of two numbers, all of it to be seen and moved (Ghosh et al., 2020).

    Parameters
    ----------
    truth : sequence [groups, 2]
        The true models, theta*_j; at most 4.
    models : sequence [k, 2]
        The first models of the server; at most 6.
    clients : int
        Clients of each group, 1 to 12.
    points : int
        Points of each client, 1 to 50.
    noise : float
        Standard deviation of the noise of y, 0 to 2.
    seed : int
        Of the clients' points and of the 200 starts; in [0, 2^32).
    task : str
        What to try. The laboratory notices when it is done: a group is lost without any noise,
        from a start of the reader's own that gives each model a client.
    small : bool
        The plane and its buttons only; it plays by itself where motion is welcome.
    """
    truth, models = _rows("truth", truth, 4), _rows("models", models, 6)
    world = {
        "kind": "linear",
        "truth": truth,
        "clients": check.whole("clients", clients, 1, 12),
        "points": check.whole("points", points, 1, 50),
        "noise": check.number("noise", noise, "[0, 2]"),
        "seed": check.whole("seed", seed, 0, 2**32 - 1),
    }
    check.among("models", len(models), len(truth) * clients)
    algorithm = {
        "name": "IFCA",
        "clusters": len(models),
        "option": "gradients",
        "participation": 1,
        "local": {"steps": 1, "step_size": 0.9},
    }
    description = {"world": world, "algorithm": algorithm, "models": models}
    description |= {"seed": world["seed"], "rounds": 0}
    groups = f"{len(truth)} groups" if len(truth) > 1 else "1 group"
    sentence = (
        f"IFCA in the plane: {len(truth) * clients} clients in {groups} choose among "
        f"{len(models)} models."
    )
    settings = {"description": description, "task": check.text("task", task)}
    settings["small"] = check.flag("small", small)
    return Laboratory("plane", settings, sentence, _still(world, models))


def _rows(name, rows, most):
    """Rows of two finite numbers inside the picture, as lists."""
    try:
        found = [list(row) for row in rows]
    except TypeError:
        words = check.shown(rows)
        raise ValueError(f"{name} must be rows of two numbers, got {words}") from None
    if not 1 <= len(found) <= most or any(len(row) != 2 for row in found):
        raise ValueError(f"{name} must be 1 to {most} rows of two numbers, got {found}")
    return [[check.number(name, v, f"[-{_EDGE}, {_EDGE}]") for v in row] for row in found]


def _still(world, models):
    """The first round as SVG: stars, crosses and clients, as in the laboratory."""
    import torch

    from clusterfl_core.live import replay  # brings all of the library

    federation = replay.linear(**{k: v for k, v in world.items() if k != "kind"})
    x, y = federation.train.x, federation.train.y
    alone = torch.linalg.lstsq(x, y[..., None], driver="gelsd").solution[..., 0]
    bank = torch.tensor(models, dtype=torch.float64)
    chosen = ((y[..., None] - x @ bank.T) ** 2).mean(1).argmin(1).tolist()
    style = looks()
    marks, colours = style["markers"], style["colours"]
    drawn = [
        _mark(marks[group % len(marks)]["outline"], at, 6, f'fill="{colours[j]}"')
        for at, group, j in zip(alone.tolist(), federation.clusters.tolist(), chosen, strict=True)
    ]
    drawn += [
        _mark(style["star"], at, 15, 'fill="none" stroke-width="1.5"') for at in world["truth"]
    ]
    for j, at in enumerate(models):
        x, y = _place(at)
        drawn.append(_mark(style["cross"], at, 11, f'fill="{colours[j]}"'))
        drawn.append(f'<text x="{x + 13:.0f}" y="{y - 4:.0f}" fill="currentColor">{j}</text>')
    frame = f'<path d="M0 0H{_SIZE}V{_SIZE}H0Z" fill="none" stroke="currentColor" opacity=".3"/>'
    return (
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" width="{_SIZE}" height="{_SIZE}" role="img" '
        'style="max-width:100%;height:auto;background:transparent" aria-label="Plane of models: '
        f"{len(world['truth'])} stars, the true models; {len(models)} numbered crosses, the "
        f"server's models; {len(drawn) - len(world['truth']) - 2 * len(models)} small marks, the "
        f'clients">{frame}{"".join(drawn)}</svg>'
    )


def _place(at):
    inside = [min(max(v, -_EDGE), _EDGE) for v in at]
    return _SIZE * (inside[0] + _EDGE) / (2 * _EDGE), _SIZE * (_EDGE - inside[1]) / (2 * _EDGE)


def _mark(outline, at, radius, look):
    x, y = _place(at)
    return (
        f'<path d="{outline}" transform="translate({x:.1f} {y:.1f}) scale({radius})" '
        f'vector-effect="non-scaling-stroke" stroke="currentColor" {look}/>'
    )
