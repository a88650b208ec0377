"""What a student's cells draw, as pictures for whoever marks: this runs inside the sandbox.

A figure counts however it is shown: left open, the value of a cell, given to `display`, drawn by
`%matplotlib inline` or by the library's own words. Each becomes PNG. What they are is a claim of
the student's process, like everything that comes from it.
"""

import base64
import contextlib
import io
import sys

from IPython.core.display import TextDisplayObject
from IPython.core.formatters import DisplayFormatter

MOST = 12  # pictures of a cell
BYTES = 4 << 20  # of all of them
PIXELS = 3_900_000  # of one
TOO_MANY, TOO_LARGE = "[more figures than are kept]", "[a figure that cannot be kept]"


def drawn(sheet) -> bytes:
    """Return a matplotlib figure as a notebook shows it; b"" if it cannot be, or is too large."""
    width, height = sheet.get_size_inches()
    dots, snug = min(sheet.dpi, (PIXELS / (width * height)) ** 0.5), None
    with contextlib.suppress(Exception):
        box = sheet.get_tightbbox()
        if box.width <= 2 * width and box.height <= 2 * height:
            snug = "tight"  # unless something lies far outside
    ground = sheet.get_facecolor() if sheet.get_facecolor()[3] else "white"
    for dpi, box in ((dots, snug), (dots, None), (dots / 3, None)):
        out = io.BytesIO()
        with contextlib.suppress(Exception):
            sheet.savefig(out, format="png", dpi=dpi, bbox_inches=box, facecolor=ground)
            size = out.getvalue()[16:24]  # in the header: width and height
            pixels = int.from_bytes(size[:4]) * int.from_bytes(size[4:])
            if 0 < out.tell() <= BYTES / 2 and pixels <= PIXELS:
                return out.getvalue()
    return b""


def sheets(shown) -> list:
    """Return the matplotlib figures of what is shown: itself, or those of the library's panels."""
    matplotlib = sys.modules.get("matplotlib.figure")
    if matplotlib and isinstance(shown, matplotlib.Figure):
        return [shown]
    if not type(shown).__module__.startswith("clusterfl_core.figures"):
        return []
    panels = list(getattr(shown, "owner", shown))
    for panel in panels:
        panel.set_title(panel.heading)
        if panel.get_legend_handles_labels()[1]:
            panel.legend()
    return [panel.figure for panel in panels]


class Pictures(DisplayFormatter):
    """IPython's way to show values, which keeps pictures; texts stay what they were."""

    def __init__(self, **options):
        super().__init__(**options)
        self.active_types = ["text/plain", "image/png"]
        self.taken: list[bytes] = []
        self.seen: list = []
        self.missing: list[str] = []

    def format(self, obj, include=None, exclude=None):
        """Keep the pictures of what is shown, and return its text."""
        own, left_out = [], set(exclude or ())
        with contextlib.suppress(Exception):
            own = sheets(obj)
        for sheet in own:
            self.add(sheet)
        left_out |= {"image/png"} if own else set()
        said, told = super().format(obj, exclude=left_out)
        picture = said.get("image/png", b"")
        if picture:
            self.keep(picture if isinstance(picture, bytes) else base64.b64decode(picture))
        text = said.get("text/plain", "")
        if isinstance(obj, TextDisplayObject):  # HTML, Markdown: shown as their source
            text = str(obj.data)
        return {"text/plain": text}, told

    def add(self, sheet) -> None:
        """Keep a matplotlib figure, once a cell."""
        if any(sheet is one for one in self.seen):
            return
        self.seen.append(sheet)
        self.keep(b"" if len(self.taken) == MOST else drawn(sheet))

    def keep(self, picture: bytes) -> None:
        """Keep a picture, or that there was one."""
        if len(self.taken) == MOST:
            self.missing.append(TOO_MANY)
        elif not 0 < len(picture) <= BYTES - sum(map(len, self.taken)):
            self.missing.append(TOO_LARGE)
        else:
            self.taken.append(picture)

    def cell(self) -> tuple[list[bytes], str]:
        """Return what the cell that ends now has shown or left open, and what was left out."""
        plot = sys.modules.get("matplotlib.pyplot")
        try:
            for number in plot.get_fignums() if plot else []:
                self.add(plot.figure(number))
                plot.close(number)
            return self.taken, "\n".join(dict.fromkeys(self.missing))
        finally:
            self.taken, self.seen, self.missing = [], [], []
