"""Figures: what is drawn is what the results say, in the colours and letters of the page."""

import gzip
import io
import itertools
import re
from xml.etree import ElementTree

import ipywidgets
import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from small_figures import a_run, a_tree, every_word

from clusterfl_core import figures
from clusterfl_core.figures import looks, player
from clusterfl_core.figures.panels import MANY

ANYTHING = st.floats(-1e9, 1e9) | st.sampled_from([float("nan"), float("inf")])


@pytest.fixture
def panel():
    """One empty panel."""
    return figures.panel("An empty panel")


WORDS = every_word()


def elements(html, kind):
    """Return the elements of one kind in what a figure shows, which must be well-formed."""
    root = ElementTree.fromstring(html)
    return root.findall(f".//{kind}")


# ---------------------------------------------------------------- looks


def test_every_algorithm_has_a_colour_and_a_dash_and_no_two_share_both():
    assert list(figures.ALGORITHMS) == list(figures.DASHES)
    colours = set(figures.ALGORITHMS.values())
    assert len(colours) == len(figures.ALGORITHMS)
    assert len({figures.look(name) for name in figures.ALGORITHMS}) == len(colours)


def test_every_cluster_has_a_colour_and_a_marker_of_its_own():
    assert len(set(figures.CLUSTERS)) == len(set(figures.MARKERS)) == len(figures.CLUSTERS)


def lab(color):
    """CIELAB under daylight: distances in it are about what an eye sees."""
    parts = np.array(to_rgb(color))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    rows = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(rows) @ linear / [0.9505, 1, 1.089])  # none is near black
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_first_twenty_clusters_and_the_algorithms_can_be_told_apart():
    colours = {figures.colour(i) for i in range(20)} | set(figures.ALGORITHMS.values())
    assert len(colours) == 21  # grey is of an algorithm alone
    for first, second in itertools.combinations(colours, 2):
        assert np.linalg.norm(lab(first) - lab(second)) > 20, (first, second)


@given(st.one_of(st.text(), st.integers(-1, 10**6)))
def test_whatever_it_is_called_it_has_a_colour_always_the_same_that_reads_on_any_page(what):
    color = figures.colour(what)
    assert figures.colour(what) == color
    assert re.fullmatch("#[0-9a-fA-F]{6}", color)
    assert figures.look(what).dash in looks.LINES
    assert figures.look(what).marker in figures.MARKERS
    light = looks.luminance(color)
    for ground in ("#ffffff", "#14181e", "#121212"):  # the page's, by day and by night; Lab's
        low, high = sorted([light, looks.luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 3
    ink = looks.luminance(looks.ink_on(color))
    assert (max(ink, light) + 0.05) / (min(ink, light) + 0.05) >= 4.5


def test_known_clusters_and_algorithms_keep_their_looks():
    assert [figures.colour(i) for i in range(6)] == list(figures.CLUSTERS)
    assert [figures.marker(i) for i in range(6)] == list(figures.MARKERS)
    for name in figures.ALGORITHMS:
        assert figures.look(name)[:2] == (figures.ALGORITHMS[name], figures.DASHES[name])
    assert figures.colour(torch.tensor(3)) == figures.colour(np.int64(3)) == figures.CLUSTERS[3]


def test_algorithms_of_others_have_looks_that_differ():
    names = ["FeSEM", "MedianIFCA", "MomentumIFCA", "FedProx", "SCAFFOLD"]
    assert len({figures.look(name)[:2] for name in names}) == len(names)


def test_a_label_looks_alike_in_all_panels_and_an_algorithm_like_itself():
    left, right = figures.panels("Two", "a", "b")
    left.spread([1, 2], [1, 2], "updates").spread([1, 2], [1, 2], "IFCA")
    right.spread([1, 2], [1, 2], "gradients").spread([1, 2], [1, 2], "updates", marks=True)
    colours = [[line.get_color() for line in one.lines] for one in (left, right)]
    blue, orange = figures.CLUSTERS[:2]
    assert colours == [[blue, figures.ALGORITHMS["IFCA"]], [orange, blue]]
    assert [line.get_marker() for line in right.lines] == ["", "o"]


# ---------------------------------------------------------------- what every figure is


@pytest.mark.parametrize("alt", ["", "  "])
def test_a_figure_without_alt_text_is_refused(alt):
    with pytest.raises(ValueError, match="needs an alt text"):
        figures.panel(alt)


@pytest.mark.parametrize("word", WORDS)
def test_a_figure_is_well_formed_and_in_the_colours_of_the_page(word):
    html = WORDS[word]._repr_html_()
    root = ElementTree.fromstring(html)
    assert root.get("role") == "img"
    assert root.get("aria-label") == WORDS[word].owner.alt
    assert not re.search(r"#(0{6}|f{6})\b", html, re.IGNORECASE), "ink and ground are the page's"
    assert "font-family" not in html
    assert not re.search("<(style|script|metadata|title)", html)
    for text in root.iter("text"):  # never in a colour that is read on one ground only
        assert text.get("fill") in ("currentColor", "#000001", "#fffffe")


@pytest.mark.parametrize("word", WORDS)
def test_no_letter_is_smaller_than_eleven_pixels_on_a_phone(word):
    for picture in elements(WORDS[word]._repr_html_(), "svg"):
        wide = float(picture.get("viewBox").split()[2])
        shown = min(1, 350 / wide) if wide > 30 else 1  # a page of 390 has 350 for its text
        for text in picture.iter("text"):
            assert float(text.get("font-size", picture.get("font-size"))) * shown >= 11


def test_names_of_axes_lie_inside_of_the_picture():
    figure = figures.panels("Two", "a", "b", x="below", y="left", height=100)
    figure._repr_html_()
    for panel in figure:
        inside, whole = panel.get_tightbbox(), panel.figure.bbox
        assert 0 < inside.x0 < inside.x1 < whole.x1
        assert 0 < inside.y0 < inside.y1 < whole.y1


def test_an_upright_name_is_not_cut_where_the_layout_left_it_no_room(panel):
    place = {"extent": (2, 30, 0.1, 2.5), "origin": "lower", "aspect": "auto"}
    panel.heat(np.ones((10, 4)), "chance", (0, 1), **place)
    panel.spread([2, 30], [0.5, 0.05]).named("clusters", "noise")
    (picture,) = elements(panel._repr_html_(), "svg")[:1]
    (name,) = [one for one in picture.iter("text") if one.text == "noise"]
    baseline = float(re.search(r"translate\(([-.\d]+)", name.get("transform"))[1])
    assert float(picture.get("viewBox").split()[0]) <= baseline - 0.75 * 12


def test_the_name_below_a_row_of_choices_lies_inside_of_the_picture(panel):
    clusters = torch.arange(40) // 10
    panel.identities(clusters, clusters)._repr_html_()
    assert panel.xaxis.label.get_window_extent().x1 < panel.figure.bbox.x1


def test_the_numbers_at_a_corner_do_not_touch(panel):
    panel.set(xlim=(0, 1), xticks=[0, 1], xticklabels=["0.0", "1.0"], ylim=(0, 8))
    panel._repr_html_()
    below, beside = panel.get_xticklabels()[0], panel.get_yticklabels()[0]
    assert (below.get_text(), beside.get_text()) == ("0.0", "0")
    under = 2  # pixels of its box, where letters such as g have their tails and digits nothing
    assert below.get_window_extent().y1 < beside.get_window_extent().y0 + under


@pytest.mark.parametrize("word", WORDS)
def test_a_figure_is_lighter_than_its_bitmap(word):
    one, written = WORDS[word], io.BytesIO()
    html = one._repr_html_()
    one.figure.savefig(written, format="png", dpi=110 * 72 / 72)
    if word not in ("pictures", "weights", "many"):  # which are bitmaps inside
        assert len(gzip.compress(html.encode())) < len(written.getvalue())


def test_no_two_figures_share_an_id():
    html = "".join(one._repr_html_() for one in [*WORDS.values(), *every_word().values()])
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(set(ids)) == len(ids) > 0
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(ids)


def test_texts_are_escaped_and_dollars_are_dollars():
    panel = figures.panel('k < 2 & "more"', "<b>title</b>", x="a < b & $c_1$")
    panel.points([0], [0], "<i>label</i>")
    html = panel._repr_html_()
    assert ElementTree.fromstring(html).get("aria-label") == 'k < 2 & "more"'
    assert "a &lt; b &amp; $c_1$" in html
    assert not re.search("<[bi]>", html)


def test_a_minus_before_a_number_is_one_and_a_hyphen_stays():
    one = figures.panel("Words", "SR-FCA: g = -0.5")
    one.text(0, 0, "-1.0")
    found = one._repr_html_()
    assert "SR-FCA: g = −0.5</div>" in found
    assert ">−1.0</text>" in found


def test_panels_of_one_height_stand_on_one_level_whatever_their_titles_take():
    alike, other = (figures.panels("Two", "short", "so long " * 9) for _ in range(2))
    other[1].rows({"a": [1], "b": [2]})
    assert "align-items:end" in alike._repr_html_()
    assert "align-items" not in other._repr_html_()


@pytest.mark.pages
@pytest.mark.parametrize(("width", "many"), [(300, 3), (195, 7), (195, 10), (145, 6)])
def test_panels_of_a_last_row_with_room_are_as_wide_as_those_above(browser, width, many):
    def widths(titles, viewport):
        tab = browser.new_page(viewport={"width": viewport, "height": 900})
        html = figures.panels("Many", *titles, width=width)._repr_html_()
        tab.set_content(f'<body style="margin:0"><div style="max-width:640px">{html}</div></body>')
        found = tab.evaluate(
            "() => [...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect().width)"
        )
        tab.close()
        return found

    wide = widths("abcdefghij"[:many], 1200)
    assert max(wide) - min(wide) < 1
    assert min(wide) >= width
    assert widths("a" * many, 358)[0] > 1.15 * width


def test_shown_twice_it_is_the_same_but_for_ids(panel):
    panel.spread([1, 2], [1, 2], "a")
    assert panel._repr_html_() == panel._repr_html_() == panel.owner._repr_html_()


def test_figures_leave_the_settings_of_matplotlib_alone():
    before = dict(mpl.rcParams)
    figures.panel("Nothing").spread([1, 2], [1, 2])._repr_html_()
    assert dict(mpl.rcParams) == before


def test_a_legend_names_each_label_once_for_all_panels():
    figure = figures.panels("Two", "a", "b")
    for one in figure:
        one.spread([1, 2], [1, 2], "updates").points([1], [1], "updates").level(1, "limit")
    texts = [item.tail or "" for item in elements(figure._repr_html_(), "span/svg")]
    assert [text.strip() for text in texts] == ["updates", "limit"]


@given(st.lists(st.tuples(ANYTHING, ANYTHING), min_size=1, max_size=30))
@settings(deadline=None, max_examples=40)
def test_nothing_is_drawn_outside_of_the_axes(points):
    panel = figures.panel("Lines that leave", xlim=(0, 1), ylim=(0, 1))
    x, y = np.array(points).T
    panel.spread(x, y, "line").points(x, y, "points").spread(x, [y, y + 1], "band")
    for path in elements(panel._repr_html_(), "path"):
        box = path.get("d")
        assert "nan" not in box
        assert "inf" not in box
        numbers = np.array([float(n) for n in re.findall(r"-?\.?\d[\d.]*", box)])
        assert (np.abs(numbers) < 400).all()


def test_more_than_a_thousand_marks_are_one_picture():
    panel = figures.panel("Cloud").points(*np.zeros((2, MANY)), "few")
    assert not elements(panel._repr_html_(), "image")
    panel.points(*np.zeros((2, MANY + 1)), "many")
    assert len(elements(panel._repr_html_(), "image")) == 1


def test_logarithmic_axes_have_plain_numbers():
    panel = figures.panel("Log", xscale="log", yscale="log")
    panel.spread([100, 1000, 1e7], [2, 3, 9])
    texts = {text.text for text in elements(panel._repr_html_(), "text")}
    assert {"1,000", "10⁷", "5"} <= texts


# ---------------------------------------------------------------- words


def test_one_row_is_a_line_and_several_are_their_mean_and_a_band(panel):
    panel.spread([1, 2], [0.1, 0.2], "one").spread([1, 2], [[0.0, 0.4], [0.3, 0.5], [0.6, 0.9]])
    assert panel.lines[0].get_xydata().tolist() == [[1, 0.1], [2, 0.2]]
    assert panel.lines[1].get_ydata() == pytest.approx([0.3, 0.6])
    (band,) = panel.collections
    corners = band.get_paths()[0].vertices
    for t, low, high in ((1, 0.0, 0.6), (2, 0.4, 0.9)):
        heights = corners[corners[:, 0] == t, 1]
        assert (heights.min(), heights.max()) == pytest.approx((low, high))


def test_bands_regions_and_contours_are_in_what_is_shown():
    panel = figures.panel("Areas", xlim=(0, 3), ylim=(0, 3))
    panel.spread([1, 2], [[1, 2], [2, 3]], like=0).region(lambda at: at[..., 0] - 1, like=1)
    panel.contours(lambda at: at[..., 1], [1.5], 2)
    paths = elements(panel._repr_html_(), "path")
    shown = [(one.get("fill"), one.get("stroke"), one.get("fill-opacity")) for one in paths]
    first, second, third = (figures.colour(j).lower() for j in range(3))
    assert (first, None, "0.2") in shown
    assert (second, None, "0.15") in shown
    assert ("none", third, None) in shown


def test_rounds_are_whole():
    panel = figures.panel("Rounds").spread(range(1, 6), [1, 2, 3, 4, 5])
    texts = [text.text for text in elements(panel._repr_html_(), "text")]
    assert "2.5" not in texts[: texts.index("5") + 1]


def test_runs_are_drawn_by_the_names_of_their_algorithms(panel):
    several = {"FeSEM": [a_run(0.1), a_run(0.3)], "CFL": [a_run(0.7)]}
    panel.curves({"IFCA": a_run(0.2, 0.5)} | several, "accuracy")
    first, second, third = panel.lines
    assert first.get_xydata().tolist() == [[1, 0.2], [2, 0.5]]
    assert second.get_xydata().tolist() == [[1, pytest.approx(0.2)]]
    assert third.get_xydata().tolist() == [[1, 0.7]]
    (band,) = panel.collections  # of the two runs; a single one has none
    assert to_hex(band.get_facecolor()) == figures.colour("FeSEM")
    for line, name in zip(panel.lines, ("IFCA", "FeSEM", "CFL"), strict=True):
        assert line.get_label() == name
        assert line.get_color() == figures.colour(name)
        assert line.get_linestyle() == figures.dash(name)
    assert panel.get_xlabel() == "round"


def test_rows_are_dots_and_a_mean_from_top_to_bottom(panel):
    panel.rows({"IFCA": torch.tensor([0.4, 0.6]), "CFL": [0.3]})
    drawn = [line.get_xdata().tolist() for line in panel.lines]
    assert drawn == [pytest.approx([0.4, 0.6]), [pytest.approx(0.5)], [0.3], [0.3]]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["IFCA", "CFL"]
    bottom, top = panel.get_ylim()
    assert bottom > top


def test_a_run_stands_beside_the_stored_ones_of_its_setting(panel):
    panel.beside({"k = 2": (0.5, [0.4, 0.6]), "k = 3": (torch.tensor(0.7), [])})
    drawn = [line.get_xydata().tolist() for line in panel.lines if len(line.get_xdata())]
    assert drawn == [[[0.4, 0], [0.6, 0]], [[0.5, 0]], [[pytest.approx(0.7), 1]]]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["k = 2", "k = 3"]
    bottom, top = panel.get_ylim()
    assert bottom > top
    assert panel.get_legend_handles_labels()[1] == ["stored", "just run"]


@pytest.mark.parametrize("stacked", [False, True])
def test_bars_are_as_high_as_their_values(panel, stacked):
    panel.bars(["a", "b"], {"x": [1, 2], "y": [3, 4]}, stacked)
    assert [bar.get_height() for bar in panel.patches] == [1, 2, 3, 4]
    assert [bar.get_y() for bar in panel.patches] == [0, 0, *([1, 2] if stacked else [0, 0])]
    middle = [bar.get_x() + bar.get_width() / 2 for bar in panel.patches]
    wanted = [0, 1, 0, 1] if stacked else [-0.2, 0.8, 0.2, 1.2]
    assert middle == pytest.approx(wanted)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_bar_that_leaves_its_axis_says_how_high_it_is(stacked):
    panel = figures.panel("Bars", ylim=(0, 4))
    panel.bars(["a", "b"], {"x": [1, 4], "y": [3, 500]}, stacked)
    assert [text.get_text() for text in panel.texts] == ["↑ 504" if stacked else "↑ 500"]
    free = figures.panel("Bars").bars(["a", "b"], {"x": [1, 4], "y": [3, 500]}, stacked)
    assert not free.texts


def test_squares_have_numbers_in_the_colours_of_their_clusters(panel):
    panel.squares([[0, 1, -1], [7, 2, 3]], ["then", "now"])
    assert [text.get_text() for text in panel.texts] == ["0", "1", "7", "2", "3"]
    filled = [one for one in panel.patches if one.get_fill()]
    assert [to_hex(one.get_facecolor()) for one in filled] == [
        figures.colour(i).lower() for i in (0, 1, 7, 2, 3)
    ]
    assert len(panel.patches) == 6
    for text, square in zip(panel.texts, filled, strict=True):
        x, y = text.get_position()
        assert square.get_bbox().contains(x, y)


def test_identities_are_a_row_of_choices_a_true_cluster(panel):
    panel.identities(torch.tensor([1, 0, -1, 1]), torch.tensor([0, 0, 1, 1]))
    assert [label.get_text() for label in panel.get_yticklabels()] == ["cluster 0", "cluster 1"]
    assert [(text.get_text(), text.get_position()) for text in panel.texts] == [
        ("1", (0, 0)), ("0", (1, 0)), ("1", (1, 1))
    ]  # fmt: skip


def test_heat_is_cold_below_zero_warm_above_and_nothing_at_zero(panel):
    panel.heat([[-1.0, 0.0], [0.5, 1.0]], "cosine", numbers=True, clusters=[0, 1])
    (shown,) = panel.images
    colours = shown.to_rgba(shown.get_array())
    assert to_hex(colours[0, 0]) == figures.CLUSTERS[0].lower()
    assert to_hex(colours[1, 1]) == figures.CLUSTERS[1].lower()
    assert colours[0, 1, 3] < 0.01
    assert [text.get_text() for text in panel.texts] == ["-1.0", "0.0", "0.5", "1.0"]
    assert [line.get_xdata()[0] for line in panel.lines[1::2]] == [0.5]
    assert "cosine: −1" in panel._repr_html_()


def test_pictures_stand_in_rows_and_are_the_pages_ink(panel):
    images = torch.arange(24.0).view(6, 2, 2)
    panel.pictures(images, "abcdef", columns=3)
    for shown, image in zip(panel.images, images, strict=True):
        assert np.array_equal(shown.get_array(), image)
    assert [text.get_text() for text in panel.texts] == list("abcdef")
    places = [one.get_extent()[0] for one in panel.images]
    assert places[:3] == places[3:]
    assert places[0] < places[1] < places[2]
    html = panel._repr_html_()
    assert len(elements(html, "mask")) == 6
    assert len([one for one in elements(html, "rect") if one.get("fill") == "currentColor"]) == 6


def test_a_plane_shows_choice_by_colour_and_truth_by_shape(panel):
    clients, clusters, chosen = [[0, 0], [1, 1]], [0, 1], [1, 0]
    panel.plane([[2, 2]], [[3, 3]], clients, clusters, chosen)
    first, second, star, model = panel.lines
    assert [one.get_marker() for one in (first, second, star, model)] == ["o", "s", "*", "X"]
    assert [one.get_color() for one in (first, second, model)] == [
        figures.colour(1), figures.colour(0), figures.colour(0)
    ]  # fmt: skip
    assert panel.get_aspect() == 1


def test_models_at_one_spot_have_their_numbers_side_by_side(panel):
    panel.plane(models=[[0, 0], [1, 1], [0, 0]])
    assert [text.get_text() for text in panel.texts] == ["0, 2", "1"]


def test_a_tree_shows_every_client_below_its_node(panel):
    panel.tree(a_tree(), torch.arange(20) // 5, [0, 2])
    assert [text.get_text() for text in panel.texts] == [
        "node 0", "leaf 1", "node 2", "leaf 3", "leaf 4"
    ]  # fmt: skip
    marks = [line for line in panel.lines if line.get_marker() in figures.MARKERS]
    assert len(marks) == 20 + 5 + 15 + 5 + 10
    assert sum(line.get_linewidth() == 3 for line in panel.lines) == 1


def test_an_edge_of_a_tree_begins_below_the_clients_of_its_node(panel):
    panel.tree(a_tree(), torch.arange(20) // 5)
    edges = [line for line in panel.lines if line.get_marker() not in figures.MARKERS]
    spots = np.concatenate([line.get_xydata() for line in panel.lines if line not in edges])
    for x, y in (line.get_xydata()[0] for line in edges):
        near = (abs(spots[:, 0] - x) < 0.3) & (np.floor(spots[:, 1]) == np.floor(y))
        assert near.sum() in (15, 20)
        assert y < spots[near, 1].min()


def test_a_box_hides_a_line_behind_it_and_not_the_picture_in_it(panel):
    panel.plot([0, 0], [-1, 1], zorder=-1)
    panel.box(0, 0, "server").picture([[1.0]], 0, 0, 0.2).bare()
    found = panel._repr_html_()
    line, paper, picture = (found.index(s) for s in ('fill="none"', 'var(--paper)"', "<mask"))
    assert line < paper < picture


def test_contours_and_regions_lie_where_the_function_says():
    panel = figures.panel("Hill", xlim=(-1, 1), ylim=(-1, 1))
    panel.contours(lambda at: at[..., 0] ** 2 + at[..., 1] ** 2, [0.25])
    ring = np.concatenate([path.vertices for path in panel.collections[0].get_paths()])
    assert np.linalg.norm(ring, axis=1) == pytest.approx(0.5, abs=0.01)
    panel.region(lambda at: torch.as_tensor(at)[..., 0] - 0.3)
    shaded = np.concatenate([path.vertices for path in panel.collections[1].get_paths()])
    assert shaded[:, 0].max() == pytest.approx(0.3, abs=0.02)


# ---------------------------------------------------------------- players


def part(widget, kind):
    """Return the widgets of one kind inside a player, outermost first."""
    found = [widget] if isinstance(widget, kind) else []
    return found + [p for child in getattr(widget, "children", ()) for p in part(child, kind)]


def drawn(*what):
    return figures.panel(" ".join(map(str, what)))


def test_a_slider_says_its_values():
    widget = player(drawn, "noise γ", [0.1, 0.5, 2])
    assert not part(widget, ipywidgets.ToggleButtons)
    (stack,) = part(widget, ipywidgets.Stack)  # a second one would follow a choice without options
    assert stack.selected_index == 0
    (slider,) = part(widget, ipywidgets.SelectionSlider)
    assert slider.description == "noise γ"
    assert [text for text, _ in slider.options] == ["0.1", "0.5", "2"]
    pages = [page.value for page in part(widget, ipywidgets.HTML)]
    assert [re.search('aria-label="(.*?)"', page)[1] for page in pages] == ["0.1", "0.5", "2"]


def test_a_choice_is_among_sequences_of_the_same_values():
    widget = player(drawn, "round", range(2), "Clusters", {1: "", 4: ""})
    (choice,) = part(widget, ipywidgets.ToggleButtons)
    assert choice.description == "Clusters"
    assert choice.options == ("1", "4")
    outer, *inner = part(widget, ipywidgets.Stack)
    assert list(outer.children) == inner
    pages = [page.value for page in part(widget, ipywidgets.HTML)]
    alts = [re.search('aria-label="(.*?)"', page)[1] for page in pages]
    assert alts == ["1 0", "1 1", "4 0", "4 1"]


def test_without_stack_the_kernel_moves_the_figure(monkeypatch):
    monkeypatch.delattr(ipywidgets, "Stack")
    widget = player(drawn, "round", range(3), "size", ["few", "many"])
    (page,) = part(widget, ipywidgets.HTML)
    (slider,) = part(widget, ipywidgets.SelectionSlider)
    (play,) = part(widget, ipywidgets.Play)
    (choice,) = part(widget, ipywidgets.ToggleButtons)
    for move, alt in (
        (lambda: None, "few 0"),
        (lambda: slider.set_trait("index", 2), "few 2"),
        (lambda: choice.set_trait("value", "many"), "many 2"),
        (lambda: play.set_trait("value", 1), "many 1"),
    ):
        move()
        assert f'aria-label="{alt}"' in page.value
    assert slider.index == 1


@pytest.mark.parametrize("bad", [([],), ([1], "choice", [])])
def test_a_player_with_nothing_to_draw_is_refused(bad):
    with pytest.raises(ValueError, match="at least one value"):
        player(drawn, "round", *bad)


def test_points_may_be_tensors():
    panel = figures.panel("Two points").points(torch.tensor([1.0, 2.0]), torch.ones(2))
    assert panel.lines[0].get_xdata().tolist() == [1, 2]
