"""How figures and pages look, against what is committed in tests/looks.

`LOOKS=record .venv/bin/pytest tests/test_looks.py` writes what it sees instead of comparing; look
at the pictures before you commit them. Needs `make book` for the pages.
"""

import json
import os
from pathlib import Path

import house
import matplotlib
import numpy as np
import pytest
from browser import FLAGS, visited
from PIL import Image, ImageFilter
from small_figures import every_word

pytestmark = pytest.mark.pages

LOOKS = Path(__file__).parent / "looks"
RECORD = os.environ.get("LOOKS") == "record"
SITE = house.ROOT / "_build" / "html"
PAGES = [f"{path}.html" for path in house.contents()]
WIDTHS = (1200, 390, 320)
GROUND = {
    "light": ("#ffffff", "#323232"),
    "dark": ("#14181e", "#ced6dd"),
}  # and ink, as the theme's

SMALLER = 4  # a committed picture is a quarter as wide
UNLIKE = 40  # of 255 steps of grey, between dots blurred over some 16 pixels
SHARE = 0.002  # of the dots of a picture that may be so unlike
SLACK = {"left": 12, "top": 70, "width": 24, "height": 90}  # pixels: a line of text more or less


# ---------------------------------------------------------------- figures


def gallery(folder: Path, scheme: str, moved: float = 0) -> str:
    """Write a page with a figure of each kind, one `moved` aside, and return its address."""
    ground, ink = GROUND[scheme]
    font = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    style = (
        f"@font-face {{ font-family: own; src: url({font.as_uri()}) }}"
        f"body {{ font: 16px own; margin: 8px; background: {ground}; color: {ink};"
        "overflow-x: hidden;"
        f"--pst-color-background: {ground} }} .cf-figure {{ margin-block: 16px }}"
        f".moved {{ position: relative; left: {moved}px }}"
    )
    shown = [one._repr_html_() for one in every_word().values()]
    shown[5] = f'<div class="moved">{shown[5]}</div>'
    page = folder / f"{scheme}-{moved}.html"
    text = f"<!doctype html><meta charset='utf-8'><style>{style}</style>{''.join(shown)}"
    page.write_text(text, encoding="utf-8")
    return page.as_uri()


def pictured(browser, address: str, width: int, folder: Path) -> Image.Image:
    """Return a page as a small picture."""
    tab = browser.new_page(viewport={"width": width, "height": 800})
    tab.goto(address)
    tab.evaluate("document.fonts.ready.then(() => true)")
    tab.screenshot(path=folder / "shot.png", full_page=True)
    tab.close()
    with Image.open(folder / "shot.png") as shot:
        return shot.convert("RGB").reduce(SMALLER)


def unlikeness(one: Image.Image, other: Image.Image) -> float:
    """Return the share of dots that differ; all of them if the sizes do."""
    if abs(one.height - other.height) > 2 or one.width != other.width:
        return 1.0
    high = min(one.height, other.height)
    blurred = [
        np.asarray(each.convert("RGB").filter(ImageFilter.GaussianBlur(2)), float)[:high]
        for each in (one, other)
    ]
    return float((np.abs(blurred[0] - blurred[1]).max(-1) > UNLIKE).mean())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", GROUND)
def test_figures_look_as_committed(browser, tmp_path, scheme, width):
    found = pictured(browser, gallery(tmp_path, scheme), width, tmp_path)
    path = LOOKS / f"figures-{width}-{scheme}.png"
    if RECORD:
        found.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    with Image.open(path) as committed:
        assert unlikeness(found, committed) <= SHARE, f"unlike {path.name}: LOOKS=record shows it"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_figure_moved_by_24_pixels_is_seen(browser, tmp_path, width):
    with Image.open(LOOKS / f"figures-{width}-light.png") as committed:
        moved = pictured(browser, gallery(tmp_path, "light", 24), width, tmp_path)
        assert unlikeness(moved, committed) > 2 * SHARE


def test_another_way_to_draw_letters_is_not_seen(browser, tmp_path):
    flags = [*FLAGS, "--font-render-hinting=none", "--disable-lcd-text"]
    flags += ["--disable-font-subpixel-positioning", "--disable-partial-raster"]
    other = browser.browser_type.launch(executable_path=house.chromium(), args=flags)
    for width in WIDTHS:
        found = pictured(other, gallery(tmp_path, "light"), width, tmp_path)
        with Image.open(LOOKS / f"figures-{width}-light.png") as committed:
            assert unlikeness(found, committed) <= SHARE
    other.close()


# ---------------------------------------------------------------- pages


def boxes(tab) -> dict[str, list[int]]:
    """Return left, top, width and height of what a page's first screen shows, by name."""
    return tab.evaluate(
        """() => {
          const found = {}, kinds = {title: "article h1", header: ".bd-header-article",
            contents: ".bd-sidebar-primary", onpage: ".bd-sidebar-secondary", figure: ".cf-figure",
            text: "article p", code: "article .cell_input", prev: ".prev-next-footer"};
          for (const [name, kind] of Object.entries(kinds)) {
            const all = [...document.querySelectorAll(kind)].filter(e => e.checkVisibility());
            all.forEach((e, n) => {
              const b = e.getBoundingClientRect();
              const seen = b.top < innerHeight && b.bottom > 8
                && b.left < innerWidth && b.right > 8;
              if (b.width && seen && n < 3)
                found[`${name} ${n}`] = [b.left, b.top, b.width, b.height].map(Math.round);
            });
          }
          return found;
        }"""
    )


def settled_boxes(tab) -> dict[str, list[int]]:
    """Return the boxes once they stay where they are: what slides has come to rest."""
    found, before = boxes(tab), None
    while found != before:
        tab.wait_for_timeout(200)
        before, found = found, boxes(tab)
    return found


def unlike_boxes(found: dict, committed: dict) -> list[str]:
    """Return what stands elsewhere, came or went."""
    words = [
        f"{name} is {'new' if name in found else 'gone'}"
        for name in found.keys() ^ committed.keys()
    ]
    for name in found.keys() & committed.keys():
        for side, one, other in zip(SLACK, found[name], committed[name], strict=True):
            if abs(one - other) > SLACK[side]:
                words.append(f"{name}: {side} {one}, was {other}")
    return sorted(words)


def committed_boxes() -> dict:
    path = LOOKS / "boxes.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@pytest.mark.parametrize("page", PAGES)
def test_first_screens_are_as_committed(browser, page):
    with visited(browser, f"{SITE.as_uri()}/", page) as (tab, _):
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 800})
            found, kept, key = settled_boxes(tab), committed_boxes(), f"{page} {width}"
            if RECORD:
                lines = (
                    f"{json.dumps(k)}: {json.dumps(v)}"
                    for k, v in sorted((kept | {key: found}).items())
                )
                text = "{\n" + ",\n".join(lines) + "\n}\n"
                (LOOKS / "boxes.json").write_text(text, encoding="utf-8")
            assert key in committed_boxes(), f"{key} has no committed look: LOOKS=record"
            assert unlike_boxes(found, committed_boxes()[key]) == []
            moved = tab.add_style_tag(content="article h1 { margin-left: 40px; width: 50% }")
            assert unlike_boxes(boxes(tab), found) != []
            moved.evaluate("style => style.remove()")
