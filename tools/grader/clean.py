"""What students wrote, made harmless for whoever reads it.

Formgrader and nbconvert render Markdown, outputs and raw cells of a notebook as HTML with all
rights of the page, which on a Jupyter server are the reader's own. So nothing of a student's
notebook is written for a person but plain text, Markdown rendered here without raw HTML, and
pictures drawn anew from their pixels.
"""

import base64
import html
import io
import re
import unicodedata
import warnings

import bleach
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

TAGS = {"p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a"}
TAGS |= {"span", "div", "eqn"}  # around formulas
TAGS |= {f"h{level}" for level in range(1, 7)} | {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"a": ["href"], "ol": ["start"]}
PROTOCOLS = {"http", "https", "mailto"}
# MathJax turns these into links, styles, ids, loaded files and pictures.
COMMANDS = "href|url|class|cssId|style|data|require|mmlToken|bbox|includegraphics|html"
ACTIVE = re.compile(rf"\\(?={COMMANDS})")
ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?", re.DOTALL)
# JupyterLab makes links of addresses in a text, whatever they do when somebody clicks.
ADDRESS = re.compile(r"(?i)(data|(?<![a-z])(?!https?:)[a-z][a-z0-9+.-]*(?=:[\\/]{2})):")
MARKDOWN_MOST = 20_000  # characters of a cell that are rendered; more is shown as it is
TEXT_MOST = 200_000  # characters of one cell or output that are shown
PIXELS = 4_000_000  # of a picture
PICTURE_BYTES = 4 << 20


def text(given: object, most: int = TEXT_MOST) -> str:
    """Return a text that every file, terminal and page can hold.

    Half characters (surrogates) become U+FFFD; colours of terminals, control characters and
    characters that turn the direction of writing are left out, except line ends and tabs.
    """
    given = given if isinstance(given, str) else str(given)
    if len(given) > most:
        given = f"{given[:most]}\n[cut: {len(given) - most} more characters]"
    given = ANSI.sub("", given.replace("\r\n", "\n").replace("\r", "\n"))
    given = given.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(c for c in given if c in "\n\t" or not hidden(c))


def hidden(character: str) -> bool:
    """Return whether a character controls something and shows nothing."""
    turns = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
    return unicodedata.category(character) == "Cc" or character in turns


def unlinked(given: str) -> str:
    """Return a text in which addresses stay text, but for those of web pages."""
    return ADDRESS.sub("\\1\u2060:", given)


def line(given: object, most: int = 300) -> str:
    """Return a text in one line, for tables, names and the terminal."""
    return " ".join(text(given, most).split())


def math(content: str, options: dict) -> str:
    """Return a formula as MathJax finds it, on a page and in JupyterLab, which escapes it twice."""
    mark = "$$" if options["display_mode"] else "$"
    content = content.replace("<", r"\lt ").replace(">", r"\gt ").replace("&", " & ")
    return html.escape(" ".join(f"{mark}{content}{mark}".split()), quote=False)


def parser() -> MarkdownIt:
    """Return a Markdown parser that shows raw HTML and pictures as the text they are."""
    made = MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
    made.enable(["table", "strikethrough"]).disable("image")
    return made.use(dollarmath_plugin, renderer=math, allow_digits=False, double_inline=True)


PARSER = parser()


def rendered(source: str) -> str:
    """Return Markdown as HTML that does nothing but show it, on one line.

    Every parser of Markdown takes such a line as it stands, as a block of HTML.
    """
    source = text(source)
    try:
        if len(source) > MARKDOWN_MOST:
            raise ValueError
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # bleach, of texts that look like file names
            page = bleach.clean(PARSER.render(source), TAGS, ATTRIBUTES, PROTOCOLS)
    except (ValueError, RecursionError, IndexError, KeyError, AssertionError):
        page = f"<pre>{html.escape(source)}</pre>"
    page = ACTIVE.sub("\u2216", page).replace("&amp; ", "& ")
    return unlinked(f"<div>{page.strip()}</div>".replace("\n", "&#10;"))


def picture(given: bytes) -> bytes | None:
    """Return a PNG drawn anew from a picture's pixels, or None if it cannot be drawn."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(given), formats=["PNG"]) as image:
                if image.width * image.height > PIXELS or len(given) > PICTURE_BYTES:
                    return None
                image = image.convert("RGBA")
        out = io.BytesIO()
        image.save(out, "PNG")
    except Exception:  # a picture can be wrong in many ways
        return None
    return out.getvalue()


def picture_output(given: bytes) -> NotebookNode:
    """Return a cell's output that shows a picture, or says that there was one."""
    drawn = picture(given)
    if drawn is None:
        return new_output("stream", name="stdout", text="[a picture that cannot be shown]\n")
    data = {"image/png": base64.b64encode(drawn).decode(), "text/plain": "a picture"}
    return new_output("display_data", data=data)


def cell(given: NotebookNode, outputs: list[NotebookNode] | None = None) -> NotebookNode:
    """Return a cell as a person may open it: type, text, nbgrader's own marks, these outputs."""
    if given.cell_type == "code":
        new = new_code_cell(text(given.source), outputs=outputs or [])
    elif given.cell_type == "markdown" and given.metadata.get("nbgrader", {}).get("locked"):
        new = new_markdown_cell(given.source)  # our own
    elif given.cell_type == "markdown":
        new = new_markdown_cell(rendered(given.source))
    else:
        shown = html.escape(text(given.source)).replace("\n", "&#10;")
        new = new_markdown_cell(unlinked(f"<div><pre>{shown}</pre></div>"))
    new.id = given.get("id", new.id)
    if "nbgrader" in given.metadata:
        new.metadata.nbgrader = dict(given.metadata.nbgrader)
    return new


def notebook(cells: list[NotebookNode]) -> NotebookNode:
    """Return a notebook of such cells; a kernel is named, nothing else."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})
