"""A renderer of matplotlib that writes small SVG in the page's own colours and letters."""

import base64
import html
import io
import itertools
import re
from zlib import crc32

import numpy as np
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.colors import to_hex
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, IdentityTransform
from PIL import Image

from clusterfl_core.figures.looks import INK, PAPER

__all__ = ["draw", "written"]

_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
ROUND = 'stroke-linecap="round"'
_NUMBERS = itertools.count()  # no two figures of a page may share an id


def draw(figure, size: float, crop: bool = False) -> str:
    """Return a figure of matplotlib as an SVG element.

    Ink has the page's colour, the ground is transparent, letters have the page's font. What is
    marked as rasterized lies inside as a picture.

    Parameters
    ----------
    figure : matplotlib figure
        With 72 dots an inch: a unit of the drawing is a CSS pixel of the figure's natural size.
    size : float
        Pixels of most letters.
    crop : bool
        Whether the drawing is only as high as what is in it.
    """
    width, height = figure.get_size_inches()
    vectors = _Renderer(72 * width, 72 * height, size)
    figure.draw(MixedModeRenderer(figure, width, height, 144, vectors))
    top, high = 0, 72 * height
    if crop:
        box = figure.get_tightbbox(vectors)  # in inches, from below
        top, high = 72 * (height - box.y1) - 2, 72 * box.height + 4
    left = min(0, vectors.left)
    return (
        f'<svg viewBox="{_n(left)} {_n(top)} {_n(72 * width - left)} {_n(high)}" '
        f'font-size="{size}" stroke-linejoin="round" aria-hidden="true">{"".join(vectors.parts)}'
        "</svg>"
    )


def written(text: str) -> str:
    """Return a text as HTML says it, with a true minus before a number."""
    return html.escape(re.sub(r"(?<!\S)-(?=\.?\d)", "−", text))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0").replace("-0.", "-.").removeprefix("0") or "0"


class _Renderer(RendererBase):
    """Collects SVG elements; matplotlib counts heights from below, SVG from above."""

    def __init__(self, width, height, size):
        super().__init__()
        self.width, self.height, self.size, self.parts = width, height, size, []
        self.left = 0  # where the letters of an upright name begin, for which layouts lack room
        self.flip = Affine2D().scale(1, -1).translate(0, height)

    def get_canvas_width_height(self):
        return self.width, self.height

    def flipy(self):
        return False

    def option_image_nocomposite(self):
        return True

    def option_scale_image(self):
        return True

    # ------------------------------------------------------------ lines, areas and marks

    def draw_path(self, gc, path, transform, rgbFace=None):
        frame, clip = gc.get_clip_rectangle(), None
        if frame is not None and len(path.vertices):
            box = path.get_extents(transform)
            if not (frame.padded(0.1).contains(*box.min) and frame.padded(0.1).contains(*box.max)):
                if rgbFace is None:
                    clip = frame.extents
                else:
                    path = transform.transform_path(path).clip_to_bbox(frame)
                    transform = IdentityTransform()
        self._add(self._data(path, transform, clip), gc, rgbFace)

    def draw_markers(self, gc, marker_path, marker_trans, path, trans, rgbFace=None):
        frame, spots = gc.get_clip_rectangle(), trans.transform(path.vertices)
        if len(spots) == 1:  # an area or a contour, which matplotlib draws like a marker
            place = marker_trans.frozen().translate(*spots[0])
            return self.draw_path(gc, marker_path, place, rgbFace)
        spots = [spot for spot in spots if np.isfinite(spot).all()]
        if frame is not None:
            spots = [spot for spot in spots if frame.padded(0.1).contains(*spot)]
        round_one = len(marker_path) == len(Path.unit_circle())
        if round_one and rgbFace is not None and not gc.get_linewidth():
            return self._dots(spots, marker_path.get_extents(marker_trans).width, gc, rgbFace)
        if round_one:  # said shorter by two arcs
            r = marker_path.get_extents(marker_trans).width / 2
            arc = f"a{_n(r)} {_n(r)} 0 1 0 "
            ring = f"{arc}{_n(2 * r)} 0{arc}{_n(-2 * r)} 0"
            shapes = (f"M{_n(x - r)} {_n(self.height - y)}{ring}" for x, y in spots)
        else:
            place = marker_trans.frozen()
            shapes = (self._data(marker_path, place + Affine2D().translate(*xy)) for xy in spots)
        self._add("".join(shapes), gc, rgbFace)

    def _dots(self, spots, width, gc, fill):
        """Draw dots as the round ends of lines without length, the shortest there is to say."""
        data = "".join(f"M{_n(x)} {_n(self.height - y)}h0" for x, y in spots)
        paint = _paint("stroke", fill, gc.get_alpha() if gc.get_forced_alpha() else None)
        self.parts.append(f'<path d="{data}"{paint} stroke-width="{_n(width)}" {ROUND}/>')

    def _data(self, path, transform, clip=None):
        """Return a path as SVG says it."""
        words = []
        for points, code in path.iter_segments(transform, clip=clip):
            if code == Path.CLOSEPOLY:
                words.append("Z")
            else:
                spots = self.flip.transform(np.reshape(points, (-1, 2))).ravel()
                words.append(_LETTERS[code] + " ".join(map(_n, spots)))
        return "".join(words)

    def _add(self, data, gc, fill):
        if not data:
            return
        words = [f'<path d="{data}" fill="none"' if fill is None else f'<path d="{data}"']
        forced = gc.get_alpha() if gc.get_forced_alpha() else None
        if gc.get_hatch():
            words.append(f' fill="url(#{self._hatch(gc, fill)})"')
        elif fill is not None:
            words.append(_paint("fill", fill, forced))
        color, thick = gc.get_rgb(), gc.get_linewidth()
        if thick and (forced if forced is not None else color[3]):
            words.append(_paint("stroke", color, forced))
            words.append(f' stroke-width="{_n(thick)}"' if thick != 1 else "")
            dashes = gc.get_dashes()[1]
            words.append(f' stroke-dasharray="{" ".join(map(_n, dashes))}"' if dashes else "")
        elif fill is None:
            return  # neither filled nor outlined
        self.parts.append("".join([*words, "/>"]))

    def _hatch(self, gc, fill):
        name = f"h{crc32(gc.get_hatch().encode()):x}-{next(_NUMBERS)}"
        lines = self._data(gc.get_hatch_path(), Affine2D().scale(40).translate(0, self.height - 40))
        under = "" if fill is None else f"<path d='M0 0h40v40H0Z'{_paint('fill', fill)}/>"
        over = f"<path d='{lines}' fill='none'{_paint('stroke', gc.get_hatch_color())}/>"
        self.parts.append(
            f'<pattern id="{name}" width="40" height="40" patternUnits="userSpaceOnUse">'
            f"{under}{over}</pattern>"
        )
        return name

    # ------------------------------------------------------------ pictures

    def get_image_magnification(self):
        return 2  # dots a pixel, for sharp screens

    def draw_image(self, gc, x, y, im, transform=None):
        rows, columns = im.shape[:2]
        matrix = (
            np.diag([columns / 2, rows / 2, 1]) if transform is None else transform.get_matrix()
        )
        (width, height), upward = np.abs(np.diag(matrix)[:2]), matrix[1, 1] > 0
        left = x + matrix[0, 2]
        top = self.height - y - matrix[1, 2] - (height if upward else 0)
        colors = im[im[..., 3] > 0][:, :3]
        inked = len(colors) and not colors.any()  # then it is a mask for the page's ink
        if inked:
            im = np.dstack([np.full_like(im[..., :3], 255), im[..., 3]])
        written = io.BytesIO()
        picture = Image.fromarray(im[::-1] if upward else im)
        if transform is None:
            picture = picture.quantize(64, dither=Image.Dither.NONE)
        picture.save(written, "PNG", optimize=True)
        data = base64.b64encode(written.getvalue()).decode()
        box = f'x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" height="{_n(height)}"'
        picture = (
            f'<image {box} preserveAspectRatio="none" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{data}"/>'
        )
        if inked:
            name = f"m{crc32(written.getvalue()):x}-{next(_NUMBERS)}"
            picture = f'<mask id="{name}">{picture}</mask>'
            picture += f'<rect {box} fill="currentColor" mask="url(#{name})"/>'
        self.parts.append(picture)

    # ------------------------------------------------------------ letters

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        width = self.get_text_width_height_descent(s, prop, ismath)[0]
        level = mtext is None or angle == 0 or mtext.get_rotation_mode() == "anchor"
        side = mtext.get_horizontalalignment() if mtext and level else "center"
        part, anchor = {"left": (0, ""), "center": (0.5, "middle"), "right": (1, "end")}[side]
        turn = np.radians(angle)
        x, y = x + part * width * np.cos(turn), self.height - y - part * width * np.sin(turn)
        place = f' x="{_n(x)}" y="{_n(y)}"'
        if angle == 90:
            self.left = min(self.left, x - 0.8 * prop.get_size_in_points())
        if angle:
            place = f' transform="translate({_n(x)} {_n(y)})rotate({_n(-angle)})"'
        look = f' text-anchor="{anchor}"' if anchor else ""
        points = prop.get_size_in_points()
        look += f' font-size="{_n(points)}"' if abs(points - self.size) > 0.05 else ""
        look += ' font-weight="bold"' if prop.get_weight() in ("bold", 700) else ""
        paint = _paint("fill", gc.get_rgb())
        self.parts.append(f"<text{place}{look}{paint}>{written(s)}</text>")


def _paint(what, color, forced=None):
    alpha = forced if forced is not None else (color[3] if len(color) > 3 else 1)
    name = to_hex(color[:3])
    name = {INK: "currentColor", PAPER: "var(--paper)"}.get(name, name)
    return f' {what}="{name}"' + (f' {what}-opacity="{alpha:.2g}"' if alpha < 1 else "")
