"""Players: figures drawn beforehand, moved by a slider, by Play and by a choice.

A player holds one figure for each value of its slider, so that it still moves in the built book,
where no kernel runs. With ipywidgets 8 the browser itself links the controls to the figures; with
ipywidgets 7, which has no ``Stack``, the kernel does.
"""

import ipywidgets

from clusterfl_core.check import function, items, kind, number, text

__all__ = ["player"]

WIDE = {"width": "100%"}


def player(draw, label, values, choice_label=None, choices=None):
    """Show one figure for each value of a slider, and of a choice, moved also by Play.

    An ``ipywidgets.VBox``, controls above the figure; ValueError if there is nothing to draw.

    Parameters
    ----------
    draw : function of a value, or of a choice and a value
        Draws the figure, a `Figure` or a `Panel`.
    label : str
        Name of the slider, as ``"round"``.
    values : sequence
        What the slider offers, and says.
    choice_label : str, optional
        Name of the choice, as ``"start"``.
    choices : sequence, optional
        What the reader chooses among; choosing keeps the slider's place.
    """
    function("draw", draw), text("label", label), kind("choice_label", choice_label, str, none=True)
    values = items("values", values, 0)
    given = [()] if choices is None else [(one,) for one in items("choices", choices, 0)]
    if not values or not given:
        raise ValueError("A player needs at least one value, and one choice if it has any.")
    for name, offered in (("values", values), ("choices", [one[0] for one in given if one])):
        for one in offered:
            if not isinstance(one, str):
                number(name, one, "(-inf, inf)", "be texts or finite numbers")
    pages = [[draw(*one, value)._repr_html_() for value in values] for one in given]

    slider = ipywidgets.SelectionSlider(
        options=[(_said(value), n) for n, value in enumerate(values)],
        description=label,
        style={"description_width": "initial"},
        layout={"width": "auto", "flex": "1 1 14em"},
    )
    play = ipywidgets.Play(max=len(values) - 1, interval=600)
    choice = ipywidgets.ToggleButtons(
        options=[_said(*one) for one in given if one],
        description=choice_label or "",
        style={"button_width": "auto"},
        layout={"width": "auto", "margin": "2px 2px 8px"},
    )
    link = _linked if hasattr(ipywidgets, "Stack") else _observed
    shown = link(pages, slider, play, choice)
    rows = [ipywidgets.HBox([play, slider], layout={"flex_flow": "row wrap"}), shown]
    return ipywidgets.VBox(rows if choices is None else [choice, *rows], layout=WIDE)


def _said(value):
    return value if isinstance(value, str) else f"{value:g}"


def _linked(pages, slider, play, choice):
    """Link the controls in the browser: needs ipywidgets 8 and no kernel."""
    stacks = [
        ipywidgets.Stack(
            [ipywidgets.HTML(text, layout=WIDE) for text in group], selected_index=0, layout=WIDE
        )
        for group in pages
    ]
    for stack in stacks:
        ipywidgets.jsdlink((slider, "index"), (stack, "selected_index"))
    ipywidgets.jslink((play, "value"), (slider, "index"))
    if len(stacks) == 1:
        return stacks[0]
    shown = ipywidgets.Stack(stacks, selected_index=0, layout=WIDE)
    ipywidgets.jsdlink((choice, "index"), (shown, "selected_index"))
    return shown


def _observed(pages, slider, play, choice):
    """Link the controls through the kernel: for ipywidgets 7, whose browser links may fail."""
    shown = ipywidgets.HTML(pages[0][0], layout=WIDE)

    def show(_):
        shown.value = pages[choice.index or 0][slider.index]  # without choices it has none

    slider.observe(show, "index")
    choice.observe(show, "index")
    ipywidgets.link((play, "value"), (slider, "index"))
    return shown
