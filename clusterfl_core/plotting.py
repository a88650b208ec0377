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
>>> plotting.colour("IFCA"), plotting.colour(1), plotting.colour("an algorithm of yours")
('#0072B2', '#D55E00', '#1b0d73')
"""

import colorsys
from zlib import crc32

import matplotlib.pyplot as plt
import numpy as np

__all__ = [
    "ALGORITHMS",
    "CLUSTERS",
    "DASHES",
    "MARKERS",
    "beside",
    "colour",
    "curves",
    "dash",
    "identity_table",
    "image_grid",
    "marker",
    "style",
]  # fmt: skip

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
NOBODY = "#dddddd"  # of a client that was never asked


def colour(what):
    """The colour of an algorithm or of a cluster, whether or not the book knows it.

    Parameters
    ----------
    what : str or int
        Name of an algorithm or number of a cluster; -1 is a client that was never asked.

    Returns
    -------
    str
        As "#0072B2", always the same for the same name or number. The clusters 0 to 19 can be told
        apart, from each other and from the algorithms of the book.
    """
    if isinstance(what, str):
        return ALGORITHMS.get(what) or _further(crc32(what.encode()) % 100)
    number = int(what)
    if number < 0:
        return NOBODY
    return CLUSTERS[number] if number < len(CLUSTERS) else _further(number - len(CLUSTERS))


def _further(number):
    # Darker than the palette, in steps of hue that come near each other late. Found by trying: the
    # first 14 and the 7 above differ by more than 20 in CIELAB, and white is read on all of them.
    red, green, blue = colorsys.hls_to_rgb(0.8 + 0.43 * number, (0.38, 0.25)[number % 2], 0.8)
    return "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue))


def dash(name):
    """The dashes of an algorithm's line, whether or not the book knows it."""
    return DASHES.get(name) or ("-", "--", "-.", ":")[crc32(name.encode()) // 100 % 4]


def marker(number):
    """The marker of a cluster; from the seventh on they begin again, in other colours."""
    return MARKERS[int(number) % len(MARKERS)]


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
        color = colour(name)
        axis.plot(rounds, values.mean(0), dash(name), color=color, label=name)
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
            color = colour(value)
            axis.add_patch(plt.Rectangle((i - 0.46, row - 0.42), 0.92, 0.84, color=color, lw=0))
            ink = "white" if _luminance(color) < 0.18 else "black"
            axis.text(i, row, int(value), ha="center", va="center", color=ink, fontsize=7)
    axis.set(xlim=(-0.6, len(clusters) - 0.4), ylim=(1.6, -0.6), xlabel="client")
    axis.set_yticks([0, 1], ["true cluster", "chosen model"])
    axis.grid(False)
    axis.spines[:].set_visible(False)


def _luminance(color):
    """From 0, black, to 1, white; below 0.18 white stands out more than black (WCAG 2)."""
    parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


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
