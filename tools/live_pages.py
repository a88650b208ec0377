"""Laboratories in the built book: a Sphinx extension, named in `_config.yml`.

Every output of a notebook carries its script, since JupyterLab and Colab show outputs one by one. A
page of the book needs it once. The extension also tells a laboratory that the page's address is its
own, keeps the theme from giving it a pale background in dark mode, and puts the small laboratory
where the front page has its mark.
"""

import re

from docutils import nodes

FRONT = '<div class="cfl-front"></div>'
SCRIPT = re.compile(r'<script data-cfl="([\w-]+)">.*?</script>\n', re.DOTALL)


def laboratories(app, doctree, docname):
    """Settle the laboratories of a page, just before it is written."""
    if app.builder.format != "html":
        return
    seen = set()

    def once(found):
        again = found[1] in seen
        seen.add(found[1])
        return "" if again else found[0]

    for raw in doctree.findall(nodes.raw):
        text = raw.astext()
        if text.strip() == FRONT:
            from clusterfl_core import live  # only where it is needed: it loads the whole library

            text = live.plane(small=True)._repr_html_()
        elif not SCRIPT.match(text):
            continue
        text = re.sub(r"^<cfl-[\w-]+(?= )", r"\g<0> address", text, flags=re.MULTILINE)
        text = SCRIPT.sub(once, text)
        raw.rawsource = text
        raw.children = [nodes.Text(text)]
        raw["classes"] = [name for name in raw["classes"] if name != "text_html"]


def setup(app):
    """Register with Sphinx."""
    app.connect("doctree-resolved", laboratories)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
