"""Figures in one style: the same colour for the same cluster or algorithm in every chapter.

Examples
--------
>>> import matplotlib.pyplot as plt
>>> from clusterfl_core import plotting
>>> figure, axis = plt.subplots()
>>> plotting.identity_table(axis, identities=[0, 1, 1], clusters=[0, 0, 1])
>>> [label.get_text() for label in axis.get_yticklabels()]
['true cluster', 'chosen model']
>>> plt.close(figure)
"""

import matplotlib.pyplot as plt
import numpy as np

# Okabe and Ito's palette, told apart with any colour vision. Some of its colours are equally light,
# so markers, dashes or written numbers tell them apart in grey.
CLUSTERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
ALGORITHMS = {
    "IFCA": "#0072B2",
    "CFL": "#009E73",
    "FedSoft": "#CC79A7",
    "FedEM": "#E69F00",
    "OneShot": "#56B4E9",
    "FedAvg": "#D55E00",
    "LocalOnly": "#6E6E6E",
}
DASHES = {
    "IFCA": "-",
    "CFL": "-",
    "FedSoft": "-",
    "FedEM": "-.",
    "OneShot": "-.",
    "FedAvg": "--",
    "LocalOnly": ":",
}


def style():
    """Set the book's look for all figures that follow."""
    plt.rcParams.update(
        {
            "figure.figsize": (6.4, 3.6),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#e4e4e4",
            "font.size": 11,
            "legend.frameon": False,
            "lines.linewidth": 2,
        }
    )


def curves(axis, runs, key):
    """Draw one quantity of the history of several runs, one line an algorithm.

    Parameters
    ----------
    axis : matplotlib axes
    runs : dict of str to Run or list of Run
        Runs by the name of their algorithm; of several runs the mean is drawn, with a band from
        the lowest to the highest.
    key : str
        A key of the history records, for example ``accuracy``.
    """
    for name, group in runs.items():
        group = group if isinstance(group, list) else [group]
        rounds = [record["round"] for record in group[0].history]
        values = np.array([[record[key] for record in one.history] for one in group])
        color = ALGORITHMS[name]
        axis.plot(rounds, values.mean(0), DASHES[name], color=color, label=name)
        if len(group) > 1:
            axis.fill_between(rounds, values.min(0), values.max(0), color=color, alpha=0.15, lw=0)
    axis.set_xlabel("round")


def identity_table(axis, identities, clusters):
    """Draw which model each client chose (one row), over its true cluster (the other row).

    Parameters
    ----------
    axis : matplotlib axes
    identities, clusters : sequence of int [m]
        Chosen model and true cluster of each client. The numbers stand in the squares as well.
    """
    for row, values in enumerate((clusters, identities)):
        for i, value in enumerate(values):
            color = CLUSTERS[int(value)] if int(value) >= 0 else "#dddddd"
            axis.add_patch(plt.Rectangle((i - 0.46, row - 0.42), 0.92, 0.84, color=color, lw=0))
            ink = "white" if color == CLUSTERS[0] else "black"  # the only dark one
            axis.text(i, row, int(value), ha="center", va="center", color=ink, fontsize=7)
    axis.set(xlim=(-0.6, len(clusters) - 0.4), ylim=(1.6, -0.6), xlabel="client")
    axis.set_yticks([0, 1], ["true cluster", "chosen model"])
    axis.grid(False)
    axis.spines[:].set_visible(False)


def beside(axis, rows):
    """Draw what was just computed (diamonds) beside what is stored (dots), a row a setting.

    Parameters
    ----------
    axis : matplotlib axes
    rows : dict of str to (float, sequence of float)
        For each setting the value just computed, and the stored ones of all seeds.
    """
    for row, (now, kept) in enumerate(rows.values()):
        axis.plot(kept, [row] * len(kept), "o", color="#999999", alpha=0.6, ms=4)
        axis.plot(now, row, "D", color=CLUSTERS[0], mfc="none", ms=8)
    axis.plot([], [], "D", color=CLUSTERS[0], mfc="none", ms=8, label="just run")
    axis.plot([], [], "o", color="#999999", alpha=0.6, ms=4, label="stored")
    axis.legend(fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)


def image_grid(axes, images, titles):
    """Show small images side by side.

    Parameters
    ----------
    axes : sequence of matplotlib axes
    images : Tensor [count, height, width]
    titles : sequence of str
    """
    for axis, image, title in zip(np.ravel(axes), images, titles, strict=True):
        axis.imshow(np.asarray(image), cmap="gray_r")
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
