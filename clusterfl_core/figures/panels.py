"""Figures: panels beside each other, and the words that draw in them."""

import contextlib
import html
import re
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba_array
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from clusterfl_core import check
from clusterfl_core.figures import svg
from clusterfl_core.figures.looks import (
    ALGORITHMS,
    CLUSTERS,
    GREY,
    INK,
    LINES,
    PAPER,
    colour,
    ink_on,
    look,
    marker,
)

__all__ = ["Figure", "Panel", "panel", "panels"]

WIDTH = 300  # pixels of a panel: two stand beside each other on a wide page, one on a phone
PAGE, GAP = 640, 12.8  # pixels of a wide page, and between panels
SIZE = 12  # pixels of a letter in a panel of natural width
MANY = 1000  # more marks than this are one picture
STYLE = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.edgecolor", "hatch.color", "patch.edgecolor", "grid.color"), INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "text.parse_math"), False),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size", "xtick.minor.size"), 0),
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), SIZE),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), SIZE),
    "ytick.minor.size": 0,
    "xtick.major.pad": 6,  # a number below the corner is clear of the number beside it
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.linewidth": 1,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",  # its letters are wide: those of the page have room
    "grid.alpha": 0.16,
    "grid.linewidth": 1,
    "hatch.linewidth": 1,
    "image.interpolation": "none",
    "lines.linewidth": 2,
    "lines.markersize": 6,
    "axes.prop_cycle": mpl.cycler(color=CLUSTERS, linestyle=(LINES * 2)[:6]),
}
COLD, WARM = CLUSTERS[:2]
MAPS = {
    "signed": LinearSegmentedColormap.from_list(
        "signed", [(0, COLD), (0.5, f"{COLD}00"), (0.5, f"{WARM}00"), (1, WARM)]
    ),
    "amount": LinearSegmentedColormap.from_list("amount", [f"{COLD}00", COLD]),
    "ink": LinearSegmentedColormap.from_list("ink", [f"{INK}00", INK]),
}


def panels(alt, *titles, x=None, y=None, width=WIDTH, height=None, **settings):
    """Begin a figure of one panel a title, beside each other where there is room.

    Parameters
    ----------
    alt : str
        What the figure shows, in words, for readers who do not see it.
    *titles : str
        A title above each panel, "" for none; without titles there is one panel.
    x, y : str, optional
        What the axes of all panels mean.
    width, height : int
        Size of a panel in pixels; by default it is five eighths as high as wide, or as high as it
        needs where both axes have one scale. Two panels of 300 fill a wide page, and one a
        phone's; of 195 there are three, and one, of 145 four, and two.
    **settings
        For all panels, as `matplotlib.axes.Axes.set` takes them: ``ylim``, ``xscale``, …

    Returns
    -------
    Figure
        A sequence of panels; what a cell ends in is shown.

    Examples
    --------
    >>> figure = panels("Two rising lines", "slow", "fast", x="round")
    >>> for panel, end in zip(figure, (1, 2)):
    ...     _ = panel.spread([1, 2], [0, end], "IFCA")
    >>> figure
    <figure: Two rising lines>
    """
    named = {name: text for name, text in (("xlabel", x), ("ylabel", y)) if text}
    return Figure(alt, titles or ("",), width, height, named | settings)


def panel(alt: str, title: str = "", **settings):
    """Begin a figure of one panel, which shows it; arguments as of `panels`."""
    return panels(alt, title, **settings)[0]


class Figure(Sequence):
    """Panels with one legend and one alt text, shown as HTML in the colours of the page."""

    def __init__(self, alt, titles, width, height, settings):
        if not check.text("alt", alt).strip():
            raise ValueError("A figure needs an alt text that says what it shows.")
        titles = [check.text("titles", one) for one in check.items("titles", titles)]
        width = check.number("width", width, "[20, 5000]")
        if height is not None:
            height = check.number("height", height, "[20, 5000]")
        self.alt, self._looks, self._bars = alt, {}, {}
        with mpl.rc_context(STYLE):
            size = width, height or 0.625 * width
            self._panels = [Panel.within(self, size, height is None, text) for text in titles]
            for one in self._panels:
                with _drawn("settings"):
                    one.set(**settings)

    def __len__(self):
        return len(self._panels)

    def __getitem__(self, place):
        return self._panels[place]

    def __repr__(self):
        return f"<figure: {self.alt}>"

    def look(self, label, like):
        """The look of a series: of what it is like, of the algorithm it names, or the next one."""
        check.kind("label", label, str, none=True)
        if like is not None:
            return look(None if like == "ink" else like)
        if label in ALGORITHMS:
            return look(label)
        return look(self._looks.setdefault(label, len(self._looks)))

    def _repr_html_(self):
        with mpl.rc_context(STYLE):
            drawn = [_panel_html(one) for one in self._panels]
            legend = self._legend()
        style = (
            "--paper:var(--pst-color-background,var(--jp-layout-color0,"
            "var(--colab-primary-surface-color,Canvas)));text-align:center;line-height:1.3"
        )
        row = "display:flex;flex-wrap:wrap;gap:.6em .8em;justify-content:center"
        if len({_height(one) for one in drawn}) == 1:  # on one level, whatever the titles take
            row += ";align-items:end"
        return (
            f'<div class="cf-figure" role="img" aria-label="{html.escape(self.alt)}" '
            f'style="{style}"><div style="{row}">{"".join(drawn)}</div>{legend}</div>'
        )

    def _legend(self):
        named = {}
        for one in self._panels:
            for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
                named.setdefault(label, handle)
        items = [f"{_swatch(handle)} {html.escape(label)}" for label, handle in named.items()]
        for label, (colors, low, high) in self._bars.items():
            stops = ",".join("#" + "".join(f"{round(255 * p):02x}" for p in c) for c in colors)
            box = "display:inline-block;width:6em;height:.8em;vertical-align:-.1em"
            bar = f'<span style="{box};background:linear-gradient(90deg,{stops})"></span>'
            items.append(f"{html.escape(label)}: {low:g} {bar} {high:g}".replace(": -", ": −"))
        row = "display:flex;flex-wrap:wrap;gap:.1em 1.2em;justify-content:center;font-size:.85em"
        items = [f'<span style="white-space:nowrap">{item}</span>' for item in items]
        return f'<div style="{row}">{"".join(items)}</div>' if items else ""


def _panel_html(one):
    width = 72 * one.figure.get_size_inches()[0]
    most, row = f"{1.25 * width:.0f}px", int((PAGE + GAP) // (width + GAP))
    if 1 < row < len(one.owner) and len(one.owner) % row:  # the last row has room: not larger there
        most = f"clamp({(PAGE + GAP) / row - GAP:.0f}px,(480px - 100vw)*99,{most})"
    shown = f"flex:1 1 {width:.0f}px;max-width:{most};min-width:0"
    if len(one.owner) == 1 and width == WIDTH:
        shown = "flex:0 1 420px;max-width:100%"  # alone it may be larger
    above = f'<div style="font-weight:600;font-size:.9em">{svg.written(one.heading)}</div>'
    free = one.free and one.get_aspect() != "auto"
    if free:
        one.figure.set_size_inches(width / 72, 1.4 * width / 72)
    picture = svg.draw(_finished(one), SIZE, free)
    picture = picture.replace("<svg ", '<svg style="width:100%;overflow:visible" ', 1)
    return f'<div style="{shown}">{above if one.heading else ""}{picture}</div>'


def _height(drawn: str) -> str:
    return re.search(r'viewBox="\S+ \S+ \S+ ([^"]+)"', drawn)[1]


def _finished(one):
    """Give a panel plain numbers on logarithmic axes, and make many marks one picture."""
    for axis in (one.xaxis, one.yaxis):
        if axis.get_scale() == "log":
            axis.set_minor_locator(NullLocator())
            low, high = sorted(axis.get_view_interval())
            if high < 100 * low and isinstance(axis.get_major_locator(), LogLocator):
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_formatter(NullFormatter())
            if isinstance(axis.get_major_formatter(), mpl.ticker.LogFormatter):
                axis.set_major_formatter(FuncFormatter(_plain))
    marks = [line for line in one.lines if line.get_marker() not in ("", " ", "None", None)]
    for artist, count in [(line, len(line.get_xdata())) for line in marks] + [
        (cloud, len(cloud.get_offsets())) for cloud in one.collections
    ]:
        artist.set_rasterized(count > MANY)
    return one.figure


def _plain(value, _=None):
    if 1e-4 <= abs(value) < 1e6:
        return f"{value:,.4f}".rstrip("0").rstrip(".")
    power = str(round(np.log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{power}"


def _swatch(handle):
    """A small piece of what a legend names: a line, a marker or an area."""
    small = Sheet((30 / 72, 12 / 72), dpi=72)
    if isinstance(handle, (tuple, mpl.container.Container)):
        handle = handle[0] if handle[0] is not None else handle[2][0]
    if isinstance(handle, Line2D):
        lined = handle.get_linestyle() not in ("None", " ", "")
        line = Line2D([2, 15, 28] if lined else [15], [6, 6, 6] if lined else [6])
        line.update_from(handle)
        line.set(markevery=[1] if lined else None, clip_on=False, transform=None, alpha=None)
        line.set_markersize(np.clip(handle.get_markersize(), 5, 8))
        small.add_artist(line)
    else:
        both = handle.get_facecolor(), handle.get_edgecolor()  # the edge's is the stripes'
        face, edge = (next(iter(to_rgba_array(one)), "none") for one in both)
        area = Rectangle((5, 1), 20, 10, fc=face, ec=edge, lw=0)
        area.set(hatch=handle.get_hatch(), transform=None)
        small.add_artist(area)
    style = "width:30px;height:12px;vertical-align:middle;overflow:visible"
    return svg.draw(small, SIZE).replace("<svg ", f'<svg style="{style}" ', 1)


class Panel(Axes):
    """Axes of matplotlib with words for what this book draws; each word returns the panel.

    A series looks like the algorithm that its label names; another label gets the next look of the
    figure, the same in all of its panels. With ``like`` it looks like an algorithm (a name), a
    cluster (a number) or "ink". What no word says is drawn with the axes' own methods.
    """

    owner: Figure
    free: bool
    heading: str  # its title

    @classmethod
    def within(cls, owner, size, free, heading):
        """Begin a panel of a figure, `size` pixels wide and high; it may be `free` in height."""
        sheet = Sheet(np.array(size) / 72, dpi=72, layout="constrained")
        made = sheet.add_subplot(axes_class=cls)
        made.owner, made.free, made.heading = owner, free, heading
        return made

    def _repr_html_(self):
        return self.owner._repr_html_()

    def text(self, *args, **kwargs):
        """Write as in matplotlib, in the figure's letters."""
        return super().text(*args, **{"fontsize": SIZE, "parse_math": False} | kwargs)

    def annotate(self, *args, **kwargs):
        """Write as in matplotlib, in the figure's letters."""
        return super().annotate(*args, **{"fontsize": SIZE, "parse_math": False} | kwargs)

    # ------------------------------------------------------------ series

    def spread(self, x, values, label=None, like=None, marks=False, line=True):
        """Draw a line over x, of several rows their mean and a band from lowest to highest.

        Parameters
        ----------
        x : sequence [points]
            Numbers, or texts that stand side by side.
        values : array [points] or [rows, points]
            A row may be a seed.
        label : str, optional
            Name in the legend.
        like : str or int, optional
            Whose look the line has.
        marks, line : bool
            Whether there is a marker at each point, and a line between them.
        """
        values, seen = np.atleast_2d(_numbers(values)), self.owner.look(label, like)
        count, marks, line = (
            len(check.items("x", x)),
            check.flag("marks", marks),
            check.flag("line", line),
        )
        if values.ndim != 2 or values.shape[1] != count:
            shape = list(values.shape)
            raise ValueError(f"values must be [rows, {count}], a number for each x, got {shape}")
        dash, shape = seen.dash if line else "", seen.marker if marks else ""
        style = {"color": seen.colour, "ls": dash, "marker": shape, "label": label}
        with _drawn("x"):
            self.plot(x, values.mean(0), **style)
        if all(isinstance(one, int) for one in x) and self.get_xscale() == "linear":
            self.xaxis.get_major_locator().set_params(integer=True)  # half a round says nothing
        if len(values) > 1:
            low, high = values.min(0), values.max(0)
            self.fill_between(x, low, high, color=seen.colour, alpha=0.2, lw=0)
        return self

    def curves(self, runs, key):
        """Draw one quantity of the history of runs, a line an algorithm.

        Parameters
        ----------
        runs : dict of str to Run or list of Run
            Runs by the name of their algorithm; of several the mean and a band.
        key : str
            A key of the history records, for example ``accuracy``.
        """
        for name, group in check.kind("runs", runs, dict).items():
            group = group if isinstance(group, list) else [group]
            for one in group:
                if not isinstance(known := getattr(one, "history", None), list):
                    raise TypeError(f"runs must hold runs, got {check.shown(one)}")
                if not known or not isinstance(key, str) or key not in known[0]:
                    names = ", ".join(known[0]) if known else "none"
                    raise ValueError(f"key must be one of {names}, got {check.shown(key)}")
            rounds = [record["round"] for record in group[0].history]
            rows = [[record[key] for record in one.history] for one in group]
            self.spread(rounds, rows, name, name)
        return self.named(x="round")

    def points(self, x, y, label=None, like=None, hollow=False, size=7):
        """Draw markers without a line, `size` pixels wide, full or hollow."""
        seen, x, y = self.owner.look(label, like), _numbers(x, "x"), _numbers(y, "y")
        if x.shape != y.shape:
            raise ValueError(f"x and y must be as many, got shapes {x.shape} and {y.shape}")
        size = check.positive("size", size)
        fill = {"mfc": "none", "mew": 1.5} if hollow else {"mec": PAPER, "mew": 0.6}
        fill = {"mec": "none", "mew": 0} if size < 5 or x.size > MANY else fill
        style = {"color": seen.colour, "ls": "", "ms": size, "label": label, **fill}
        self.plot(x, y, marker=seen.marker, **style)
        return self

    def level(self, height, label=None, like="ink"):
        """Draw a level, a dotted line across the panel."""
        style = {"color": self.owner.look(label, like).colour, "ls": ":", "lw": 1.5}
        height = check.number("height", height, "(-inf, inf)", "be finite")
        self.axhline(height, label=label, **style)
        return self

    def border(self, place, label=None, like="ink"):
        """Draw a border, a dashed line from bottom to top."""
        style = {"color": self.owner.look(label, like).colour, "ls": "--", "lw": 1.2}
        place = check.number("place", place, "(-inf, inf)", "be finite")
        self.axvline(place, label=label, **style)
        return self

    def rows(self, groups, like=None, middle=np.mean):
        """Draw a row of dots a name, say of a method: a dot a seed, and a diamond in the middle.

        Parameters
        ----------
        groups : dict of str to sequence
            Values by name, from top to bottom.
        like : sequence of str or int, optional
            Whose looks the rows have; by default each has that of its name.
        middle : function, optional
            Of the values of a row, as ``numpy.median``; None for no diamond.
        """
        check.function("middle", middle, none=True)
        if like is not None and len(check.items("like", like)) != len(groups):
            raise ValueError(f"like must name {len(groups)} looks, got {check.shown(like)}")
        for row, (name, values) in enumerate(check.kind("groups", groups, dict).items()):
            values = _row("groups", values)
            seen = self.owner.look(name, None if like is None else like[row])
            at = row + np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else [row]
            self.plot(values, at, "o", color=seen.colour, ms=5, alpha=0.6)
            if middle:
                self.plot(middle(values), row, "D", color=seen.colour, ms=8, mec=INK)
        return self._in_rows(groups)

    def beside(self, rows):
        """Draw what was just computed (diamonds) beside what is stored (dots), a row a setting.

        Parameters
        ----------
        rows : dict of str to (float, sequence of float)
            For each setting the value just computed, and the stored ones of all seeds.
        """
        for both in check.kind("rows", rows, dict).values():
            if not isinstance(both, tuple | list) or len(both) != 2:
                raise TypeError(f"rows must be pairs (now, stored), got {check.shown(both)}")
            _row("rows", [both[0]])
            _row("rows", both[1])
        for row, (now, kept) in enumerate(rows.values()):
            stored, run = (None, None) if row else ("stored", "just run")
            self.plot(_numbers(kept), [row] * len(kept), "o", color=GREY, alpha=0.6, label=stored)
            self.plot(float(now), row, "D", color=CLUSTERS[0], mfc="none", ms=8, label=run)
        return self._in_rows(rows)

    def _in_rows(self, names):
        if self.free:  # 22 pixels a row, and 60 for the axis below
            self.figure.set_figheight((60 + 22 * len(names)) / 72)
        self.set_yticks(range(len(names)), list(names))
        self.set_ylim(len(names) - 0.5, -0.5)
        return self

    def bars(self, names, groups, stacked=False):
        """Draw bars a name, beside each other or on top of each other, a label a group.

        Parameters
        ----------
        names : sequence
            What stands below the bars.
        groups : dict of str to sequence
            Heights by label. A bar above a ``ylim`` given before says how high it is.
        """
        names, stacked = check.items("names", names), check.flag("stacked", stacked)
        check.items("groups", check.kind("groups", groups, dict))
        for values in groups.values():
            _row("groups", values, len(names))
        place, wide = np.arange(len(names)), 0.8 if stacked else 0.8 / len(groups)
        below = np.zeros(len(names))
        for n, (label, values) in enumerate(groups.items()):
            shift = 0 if stacked else (n - (len(groups) - 1) / 2) * wide
            style = {"color": self.owner.look(label, None).colour, "hatch": ("", "//", "xx")[n % 3]}
            style |= {"edgecolor": PAPER, "bottom": below, "label": label if label else None}
            self.bar(place + shift, _numbers(values), 0.94 * wide, **style)
            below = below + _numbers(values) if stacked else below
            if not stacked or n == len(groups) - 1:
                self._cut(place + shift, below if stacked else _numbers(values))
        self.set_xticks(place, names)
        self.grid(visible=False, axis="x")
        return self

    def _cut(self, places, heights):
        """Write on the bars that leave an axis of fixed limits how high they are."""
        top = max(self.get_ylim())
        for at, high in zip(places, heights, strict=True):
            if high > top and not self.get_autoscaley_on():
                style = {"ha": "center", "va": "top", "bbox": {"fc": PAPER, "lw": 0, "pad": 2}}
                self.text(at, 0.97 * top, f"↑ {high:,.4g}", **style)

    # ------------------------------------------------------------ the plane of models

    def plane(self, truths=(), models=(), clients=(), clusters=None, chosen=None, after=None):
        """Draw a plane of models, each a point of two numbers.

        Parameters
        ----------
        truths : array [k, 2]
            True models, stars.
        models, after : array [k, 2]
            The algorithm's models, numbered crosses, and where each goes next, an arrow.
        clients : array [m, 2]
            Best models of single clients.
        clusters, chosen : sequence of int [m]
            Their true clusters, the shapes, and the models they chose, the colours.
        """
        truths, models, clients = (
            _spots(name, spots)
            for name, spots in (("truths", truths), ("models", models), ("clients", clients))
        )
        for name, named in (("clusters", clusters), ("chosen", chosen)):
            if named is not None and len(check.wholes(name, named)) != len(clients):
                raise ValueError(f"{name} must name {len(clients)} clients, got {len(named)}")
        after = after if after is None else _spots("after", after)
        alike = {}  # spots by their look
        for i, spot in enumerate(clients):
            shape = marker(0 if clusters is None else clusters[i])
            color = GREY if chosen is None else colour(chosen[i])
            alike.setdefault((shape, color), []).append(spot)
        for (shape, color), spots in alike.items():
            self.plot(*np.transpose(spots), shape, color=color, ms=8, mec=PAPER, mew=0.6)
        for spot in truths:
            self.plot(*spot, "*", ms=17, mfc="none", mec=INK, mew=1.2)
        if after is not None:
            self.arrows(after, models)
        numbers = {}  # of the models at a spot, which may be several
        for j, spot in enumerate(models):
            self.plot(*spot, "X", ms=13, color=colour(j), mec=INK, mew=1.2)
            numbers.setdefault(tuple(spot), []).append(str(j))
        for spot, here in numbers.items():
            self.note(spot, ", ".join(here))
        self.grid(visible=False)
        self.set_aspect("equal")
        return self.named(x="first number of the model", y="second number of the model")

    def arrows(self, tips, starts=(0, 0), like=None, labels=()):
        """Draw an arrow to each tip, from its start or all from one.

        The arrows look like the clusters 0, 1, …, like those of the list `like`, or all like one.
        """
        tips, starts = _spots("tips", tips), _numbers(starts, "starts")
        starts = starts if starts.shape == (2,) else _spots("starts", starts)
        if starts.ndim == 2 and len(starts) != len(tips):
            raise ValueError(f"starts must be one or {len(tips)} spots, got {len(starts)}")
        starts = np.broadcast_to(starts, tips.shape)
        for name, named in (("labels", labels), ("like", like)):
            many = isinstance(named, list | tuple | np.ndarray) and np.ndim(named)
            if many and len(named) and len(named) < len(tips):
                raise ValueError(f"{name} must be {len(tips)} of them, got {len(named)}")
        for n, (start, tip) in enumerate(zip(starts, tips, strict=True)):
            one = n if like is None else like if np.ndim(like) == 0 else like[n]
            seen = self.owner.look(None, one)
            style = {"arrowstyle": "-|>", "color": seen.colour, "ls": seen.dash, "lw": 2}
            style |= {"shrinkA": 0, "shrinkB": 0, "mutation_scale": 12}
            self.annotate("", tip, start, arrowprops=style)
            self.plot(*np.array([start, tip]).T, "", alpha=0)  # arrows do not widen the axes
            if len(labels):
                self.note(tip, labels[n])
        return self

    def note(self, spot, text):
        """Write beside a spot, above it and to its right."""
        spot = check.array("spot", _numbers(spot, "spot"), 2)
        check.text("text", text)
        self.annotate(text, spot, xytext=(6, 5), textcoords="offset points")
        return self

    def contours(self, height, levels, like=None, sides=81):
        """Draw where a function of points [..., 2] has these heights, within the axes' limits."""
        x, y = (np.linspace(*ends, sides) for ends in (self.get_xlim(), self.get_ylim()))
        if isinstance(levels, int | np.integer):  # so many
            levels = check.whole("levels", levels, 1, 100)
        else:
            levels = np.sort(check.array("levels", levels, None))
        values = _heights(height, x, y)
        seen = self.owner.look(None, like)
        style = {"colors": seen.colour, "linestyles": seen.dash, "linewidths": 1}
        self.contour(x, y, _numbers(values), levels, **style)
        return self

    def region(self, height, label=None, like="ink", sides=81):
        """Shade where a function of points [..., 2] is below zero, within the axes' limits."""
        x, y = (np.linspace(*ends, sides) for ends in (self.get_xlim(), self.get_ylim()))
        values = _heights(height, x, y)
        color = self.owner.look(label, like).colour
        self.contourf(x, y, values, [-np.inf, 0], colors=color, alpha=0.15)
        if label:
            self.add_patch(Rectangle((x[0], y[0]), 0, 0, fc=color, lw=0, alpha=0.15, label=label))
        return self

    def circles(self, centers, radius, like=None):
        """Draw a circle around each center, in the look of the clusters 0, 1, … or of one thing."""
        radius = check.positive("radius", radius)
        for n, center in enumerate(_spots("centers", np.atleast_2d(_numbers(centers, "centers")))):
            seen = self.owner.look(None, n if like is None else like)
            style = {"fill": False, "ec": seen.colour, "ls": ":", "lw": 1.5}
            self.add_patch(Circle(center, radius, **style))
        return self

    # ------------------------------------------------------------ tables and pictures

    def squares(self, table, names=None):
        """Draw a table of numbers of clusters, each in the square of its cluster's colour.

        Parameters
        ----------
        table : sequence of sequences of int
            A row of squares each; -1 is an empty place, an outline.
        names : sequence of str, optional
            What stands before the rows.
        """
        table = [check.wholes("table", row).tolist() for row in check.items("table", table)]
        if names is not None and len(check.items("names", names)) != len(table):
            raise ValueError(f"names must be {len(table)}, one a row, got {check.shown(names)}")
        for row, values in enumerate(table):
            for column, value in enumerate(map(int, values)):
                style = {"fc": colour(value), "lw": 0} if value >= 0 else {"fill": False, "lw": 0.7}
                self.add_patch(Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, **style))
                if value >= 0:
                    style = {"ha": "center", "va": "center", "color": ink_on(colour(value))}
                    self.text(column, row, str(value), **style)
        wide = max(map(len, table))
        self.set(xlim=(-0.5, wide - 0.5), ylim=(len(table) - 0.5, -0.5))
        self.set_yticks(range(len(table)), names or range(len(table)))
        self.xaxis.get_major_locator().set_params(integer=True)
        self.spines[:].set_visible(False)
        self.grid(visible=False)
        self.set_aspect("equal")
        return self

    def identities(self, identities, clusters):
        """Draw which model each client chose, a row of squares a true cluster."""
        identities = check.wholes("identities", identities).numpy()
        clusters = check.wholes("clusters", clusters).numpy()
        if len(identities) != len(clusters) or not len(clusters) or clusters.min() < 0:
            sizes = f"{len(identities)} and {len(clusters)}"
            raise ValueError(f"identities and clusters must be of the same clients, got {sizes}")
        true = range(int(clusters.max()) + 1)
        self.squares([identities[clusters == j] for j in true], [f"cluster {j}" for j in true])
        self.set_xticks([])
        return self.named(x="its clients, and the model each chose")

    def heat(self, values, label, limits=(-1, 1), numbers=False, clusters=(), **place):
        """Draw a table of numbers as colours: of both signs two, of amounts one.

        Parameters
        ----------
        values : array [rows, columns]
        label : str
            What is drawn; stands beside the colours in the legend.
        limits : (float, float)
            What the ends of the colours stand for; with a first of 0 there is one colour.
        numbers : bool
            Whether the numbers stand in the squares.
        clusters : sequence of int, optional
            True clusters of clients in order; lines part them.
        **place
            As `matplotlib.axes.Axes.imshow` takes it: ``extent``, ``aspect``, ``origin``.
        """
        limits = check.array("limits", limits, 2).tolist()
        if not limits[0] < limits[1]:
            raise ValueError(f"limits must be two numbers, low < high, got {limits}")
        shades = MAPS["signed" if limits[0] < 0 else "amount"]
        values, numbers = _numbers(values), check.flag("numbers", numbers)
        if values.ndim != 2 or not values.size:
            raise ValueError(f"values must be [rows, columns], got shape {list(values.shape)}")
        check.text("label", label)
        clusters = check.wholes("clusters", check.items("clusters", clusters, 0)).numpy()
        self.imshow(
            values, cmap=shades, vmin=limits[0], vmax=limits[1], interpolation="none", **place
        )
        for axis in () if "extent" in place else (self.xaxis, self.yaxis):
            axis.get_major_locator().set_params(integer=True)
        self.owner._bars[label] = shades([0, 0.25, 0.5, 0.75, 1.0]), *limits
        for (row, column), value in np.ndenumerate(values) if numbers else ():
            strong = abs(value) > 0.7 * max(map(abs, limits))
            ink = ink_on(CLUSTERS[int(value > 0 and limits[0] < 0)]) if strong else INK
            self.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink)
        for edge in np.flatnonzero(np.diff(clusters)) + 0.5:
            self.axhline(edge, color=INK, lw=0.8)
            self.axvline(edge, color=INK, lw=0.8)
        self.grid(visible=False)
        return self

    def pictures(self, images, labels=(), columns=None, signed=False):
        """Draw small images in rows, in the page's ink or, with signs, in two colours.

        Parameters
        ----------
        images : array [count, height, width]
        labels : sequence of str
            One above each image, or none.
        columns : int, optional
            How many stand in a row; by default all.
        """
        images = _numbers(images, "images")
        if images.ndim != 3 or not images.size or np.isnan(images).any():
            shape = list(images.shape)
            raise ValueError(f"images must be [count, height, width], all numbers, got {shape}")
        labels, columns = (
            check.items("labels", [*labels] if isinstance(labels, str) else labels, 0),
            check.whole("columns", columns, none=True),
        )
        if labels and len(labels) != len(images):
            raise ValueError(f"labels must be {len(images)} or none, got {len(labels)}")
        signed = check.flag("signed", signed)
        (high, wide), columns = images.shape[1:], columns or len(images)
        above, top = 0.5 * high if len(labels) else 0, float(np.abs(images).max())
        for n, one in enumerate(images):
            x, y = 1.15 * wide * (n % columns), -(1.15 * high + above) * (n // columns)
            self.picture(one, x, y, wide, signed, top)
            if len(labels):
                style = {"ha": "center", "va": "bottom"}
                self.text(x, y + 0.58 * high, labels[n], **style)
        return self.bare()

    def picture(self, image, x, y, width, signed=False, top=None):
        """Draw an image [height, width] around a spot, so wide, darkest at its largest or `top`."""
        image = _numbers(image, "image")
        if image.ndim != 2 or not image.size:
            raise ValueError(f"image must be [height, width], got shape {list(image.shape)}")
        x, y = (check.number(n, v, "(-inf, inf)", "be finite") for n, v in (("x", x), ("y", y)))
        width = check.positive("width", width)
        high, top = width * image.shape[0] / image.shape[1], top or float(np.abs(image).max())
        style = {"cmap": MAPS["signed" if signed else "ink"], "interpolation": "none"}
        style |= {"vmin": -top if signed else 0, "vmax": top}
        box = (x - width / 2, x + width / 2, y - high / 2, y + high / 2)
        self.imshow(image, extent=box, **style)
        self.autoscale_view()  # imshow shows nothing else
        return self

    # ------------------------------------------------------------ diagrams

    def tree(self, tree, clusters, path=()):
        """Draw a tree of groups: each node with its clients, as the squares of their clusters.

        Parameters
        ----------
        tree : sequence of nodes with ``children``, ``parent`` and ``clients``
        clusters : sequence of int [m]
            True clusters of the clients.
        path : sequence of int
            Nodes on a way through the tree, drawn stronger.
        """
        spots, free = {}, iter(range(len(tree)))

        def put(v, depth):
            across = [put(child, depth + 1) for child in tree[v].children]
            spots[v] = (np.mean(across) if across else float(next(free)), -depth)
            return spots[v][0]

        put(0, 0)
        for v, node in enumerate(tree):
            x, y = spots[v]
            if node.parent >= 0:  # an edge begins below the parent's clients
                rows, style = (len(tree[node.parent].clients) + 4) // 5, {"color": INK, "zorder": 0}
                above = np.subtract(spots[node.parent], (0, min(0.15 + 0.13 * rows, 0.8)))
                self.plot(*np.transpose([above, spots[v]]), lw=3 if v in path else 1, **style)
            for n, i in enumerate(node.clients):
                at = x + (n % 5 - (min(len(node.clients), 5) - 1) / 2) * 0.13
                kind = int(clusters[int(i)])
                style = {"color": colour(kind), "mec": PAPER, "ms": 9, "mew": 0.6}
                self.plot(at, y - 0.2 - 0.13 * (n // 5), marker(kind), **style)
            words = f"node {v}" if node.children else f"leaf {v}"
            style = {"ha": "center", "va": "center", "bbox": {"fc": PAPER, "lw": 0, "pad": 2}}
            self.text(x, y, words, **style)
        self.set(xlim=(-0.5, max(x for x, _ in spots.values()) + 0.5))
        self.set_axis_off()
        return self

    def box(self, x, y, text, like="ink", width=1.0, height=0.5):
        """Draw a box with a text around a spot, in the look of an algorithm or a cluster.

        It hides what is drawn below ``zorder=-0.5``, say a line that runs behind it.
        """
        seen = self.owner.look(None, like).colour
        corner = (x - width / 2, y - height / 2)
        self.add_patch(Rectangle(corner, width, height, fc=PAPER, lw=0, zorder=-0.5))
        self.add_patch(Rectangle(corner, width, height, fc=seen, ec=seen, alpha=0.15))
        self.add_patch(Rectangle(corner, width, height, fill=False, ec=seen, lw=1.5))
        self.text(x, y, text, ha="center", va="center")
        self.autoscale_view()
        return self

    def bare(self):
        """Leave out the axes; both directions have one scale."""
        self.set_aspect("equal")
        self.set_axis_off()
        return self

    def named(self, x=None, y=None):
        """Name the axes that have no name yet."""
        if x and not self.get_xlabel():
            self.set_xlabel(x)
        if y and not self.get_ylabel():
            self.set_ylabel(y)
        return self


def _numbers(values, name="values"):
    """Return an array of numbers from tensors, lists of tensors or anything alike."""
    try:
        return _plainly(values)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be numbers, got {check.shown(values)}") from None


def _plainly(values):
    if isinstance(values, (list, tuple, range)):
        return np.array([_plainly(one) for one in values])
    if isinstance(values, str | bytes | None):
        raise TypeError
    return np.asarray(values, dtype=float)


def _row(name, values, count=None):
    """Return a row of numbers, so many; what is not finite is not drawn."""
    found = _numbers(values, name)
    if found.ndim != 1 or count not in (None, len(found)):
        many = "a row of numbers" if count is None else f"{count} numbers"
        raise ValueError(f"{name} must be {many}, got shape {list(found.shape)}")
    return found


def _spots(name, spots):
    """Return points of the plane, [n, 2]."""
    found = _numbers(spots, name)
    found = found if found.size else np.empty((0, 2))
    if found.ndim != 2 or found.shape[1] != 2:
        raise ValueError(f"{name} must be spots [n, 2], got shape {list(found.shape)}")
    return found


def _heights(height, x, y):
    """Return the heights of a grid."""
    found = _numbers(check.function("height", height)(np.stack(np.meshgrid(x, y), -1)), "height")
    if found.shape != (len(y), len(x)):
        raise ValueError(f"height must give one number a point, got shape {list(found.shape)}")
    return found


@contextlib.contextmanager
def _drawn(name):
    """Say whose fault it is where matplotlib cannot draw."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{name} must be what matplotlib can draw: {why}") from error
