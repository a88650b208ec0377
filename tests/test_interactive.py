import io

import ipywidgets
import matplotlib.pyplot as plt
import pytest
from PIL import Image

from clusterfl_core.interactive import frame, player


def frames(count: int, name: str = "a") -> list[tuple[bytes, str]]:
    return [(b"png", f"{name} {i}") for i in range(count)]


def part(widget, kind):
    """Return the widgets of one kind inside a player, outermost first."""
    found = [widget] if isinstance(widget, kind) else []
    return found + [p for child in getattr(widget, "children", ()) for p in part(child, kind)]


def test_frame_is_a_small_picture_and_its_figure_is_closed():
    figure, axes = plt.subplots(figsize=(5, 3.4))
    axes.plot([0, 1], label="a line")
    png, alt = frame(figure, "A rising line")
    assert alt == "A rising line"
    assert len(png) < 10_000
    assert not plt.fignum_exists(figure.number)
    picture = Image.open(io.BytesIO(png))
    assert picture.size == (550, 374)
    assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_frame_keeps_labels_inside_the_picture():
    figure, axes = plt.subplots(figsize=(4, 1))
    axes.set(xlabel="below", ylabel="left")
    frame(figure, "Two labels")
    box = axes.get_tightbbox()
    assert box.x0 >= 0
    assert box.y0 >= 0


def test_one_sequence_has_no_choice_to_make():
    widget = player(frames(3), label="Step")
    assert not part(widget, ipywidgets.ToggleButtons)
    (slider,) = part(widget, ipywidgets.IntSlider)
    assert (slider.description, slider.min, slider.max, slider.value) == ("Step", 0, 2, 0)


def test_a_mapping_gives_a_choice_of_sequences():
    widget = player({1: frames(2), 4: frames(2, "b")}, choice_label="Clusters")
    (choice,) = part(widget, ipywidgets.ToggleButtons)
    assert choice.description == "Clusters"
    assert choice.options == ("1", "4")
    outer, *inner = part(widget, ipywidgets.Stack)
    assert list(outer.children) == inner
    assert [len(stack.children) for stack in inner] == [2, 2]


def test_alt_texts_are_escaped():
    widget = player([(b"png", 'k < 2 & "more"')])
    (picture,) = part(widget, ipywidgets.HTML)
    assert 'alt="k &lt; 2 &amp; &quot;more&quot;"' in picture.value


def test_without_stack_the_kernel_moves_the_picture(monkeypatch):
    monkeypatch.delattr(ipywidgets, "Stack")
    widget = player({"few": frames(3), "many": frames(3, "b")})
    (picture,) = part(widget, ipywidgets.HTML)
    (slider,) = part(widget, ipywidgets.IntSlider)
    (play,) = part(widget, ipywidgets.Play)
    (choice,) = part(widget, ipywidgets.ToggleButtons)
    assert 'alt="a 0"' in picture.value
    slider.value = 2
    assert 'alt="a 2"' in picture.value
    choice.value = "many"
    assert 'alt="b 2"' in picture.value
    play.value = 1
    assert slider.value == 1
    assert 'alt="b 1"' in picture.value


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ([], "at least one frame"),
        ({}, "at least one frame"),
        ({"a": frames(2), "b": []}, "at least one frame"),
        ({"a": frames(2), "b": frames(3)}, r"equally many frames; here they have .*'b': 3"),
        ([(b"png", " ")], "alt text"),
    ],
)
def test_bad_frames_are_refused_in_one_sentence(bad, sentence):
    with pytest.raises(ValueError, match=sentence):
        player(bad)
