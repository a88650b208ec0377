"""Players: pictures computed beforehand, moved by a slider, by Play and by a choice.

A player holds one picture for each value of its control, so that it still moves in the built book,
where no kernel runs. With ipywidgets 8 the browser itself links the controls to the pictures; with
ipywidgets 7, which has no ``Stack``, the kernel does.
"""

import base64
import html
import io
from collections.abc import Mapping, Sequence

import ipywidgets
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

__all__ = ["frame", "player"]

Frame = tuple[bytes, str]


def frame(figure: Figure, alt: str, dpi: int = 110) -> Frame:
    """Render a figure to a small picture and close it.

    Parameters
    ----------
    figure : Figure
        A matplotlib figure; it is closed.
    alt : str
        What the picture shows, in words, for readers who do not see it.
    dpi : int
        Dots per inch of the figure's size.

    Returns
    -------
    tuple of bytes and str
        The picture as PNG with at most 128 colours, and `alt`.

    Examples
    --------
    >>> figure, axes = plt.subplots()
    >>> picture, text = frame(figure, "Two empty axes")
    >>> picture[1:4], text
    (b'PNG', 'Two empty axes')
    """
    full, small = io.BytesIO(), io.BytesIO()
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")  # else labels can be cut off
    figure.savefig(full, format="png", dpi=dpi, facecolor="white")
    plt.close(figure)
    with Image.open(full) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
            small, "PNG", optimize=True
        )
    return small.getvalue(), alt


def player(
    frames: Sequence[Frame] | Mapping[str, Sequence[Frame]],
    label: str = "Round",
    choice_label: str | None = None,
) -> ipywidgets.VBox:
    """Show pictures one at a time, moved by a slider and by Play.

    Parameters
    ----------
    frames : sequence of (png, alt), or mapping of a choice to such a sequence
        The pictures in order, from `frame`. With a mapping the reader also chooses among its keys;
        every choice has equally many pictures, and choosing keeps the place.
    label : str
        Name of the slider. It counts the pictures from 0.
    choice_label : str, optional
        Name of the choice, for a mapping.

    Returns
    -------
    ipywidgets.VBox
        Controls above the picture.

    Raises
    ------
    ValueError
        If there is no picture, if choices have unequally many, or if a picture has no alt text.
    """
    groups = frames if isinstance(frames, Mapping) else {"": frames}
    lengths = {str(name): len(group) for name, group in groups.items()}
    if not lengths or not all(lengths.values()):
        raise ValueError("A player needs at least one frame in each choice.")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Every choice needs equally many frames; here they have {lengths}.")
    if not all(alt.strip() for group in groups.values() for _, alt in group):
        raise ValueError("Every frame needs an alt text that says what it shows.")

    pictures = [[_picture(*each) for each in group] for group in groups.values()]
    last = len(pictures[0]) - 1
    slider = ipywidgets.IntSlider(
        max=last, description=label, layout={"width": "auto", "flex": "1 1 14em"}
    )
    play = ipywidgets.Play(max=last, interval=600)
    choice = ipywidgets.ToggleButtons(
        options=list(lengths),
        description=choice_label or "",
        style={"button_width": "auto"},
        layout={"width": "auto", "margin": "2px 2px 8px"},
    )
    link = _linked if hasattr(ipywidgets, "Stack") else _observed
    shown = link(pictures, slider, play, choice)
    rows = [ipywidgets.HBox([play, slider], layout={"flex_flow": "row wrap"}), shown]
    if isinstance(frames, Mapping):
        rows.insert(0, choice)
    return ipywidgets.VBox(rows, layout={"max_width": "46rem"})


def _picture(png: bytes, alt: str) -> str:
    """Return an HTML image that carries its own bytes."""
    data = base64.b64encode(png).decode()
    style = "max-width:100%;height:auto;background:white"
    return f'<img style="{style}" alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'


def _linked(pictures, slider, play, choice):
    """Link the controls in the browser: needs ipywidgets 8 and no kernel."""
    stacks = [
        ipywidgets.Stack([ipywidgets.HTML(text) for text in group], selected_index=0)
        for group in pictures
    ]
    for stack in stacks:
        ipywidgets.jsdlink((slider, "value"), (stack, "selected_index"))
    ipywidgets.jslink((play, "value"), (slider, "value"))
    shown = ipywidgets.Stack(stacks, selected_index=0)
    ipywidgets.jsdlink((choice, "index"), (shown, "selected_index"))
    return shown


def _observed(pictures, slider, play, choice):
    """Link the controls through the kernel: for ipywidgets 7, whose browser links may fail."""
    shown = ipywidgets.HTML(pictures[0][0])

    def show(_):
        shown.value = pictures[choice.index][slider.value]

    slider.observe(show, "value")
    choice.observe(show, "index")
    ipywidgets.link((play, "value"), (slider, "value"))
    return shown
