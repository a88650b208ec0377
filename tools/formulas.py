"""Formula and line: a Sphinx extension by which a term of a formula shows the code for it.

A Markdown cell of a notebook may carry ``"terms"`` in its metadata, a list of

    {"tex": a piece of one of its formulas, "code": [pieces of the code], "words": what it is}

The pieces of code stand in the next code cell that holds them all. The notebook itself stays plain:
Colab and GitHub show formula and code as ever. In the built page each piece of the formula gets a
class, and ``terms.js`` lights both when one of them is touched.
"""

import json


def told(cells):
    """The terms of a notebook's cells, checked: (its number, that of the code cell, terms).

    ValueError says which piece stands nowhere, or in two places.
    """
    found = []
    for number, cell in enumerate(cells):
        if not (terms := cell.get("metadata", {}).get("terms")):
            continue
        text = "".join(cell["source"])
        for term in terms:
            if text.count(term["tex"]) != 1:
                raise ValueError(
                    f"{term['tex']} stands {text.count(term['tex'])} times in its cell"
                )
        pieces = [piece for term in terms for piece in term["code"]]
        later = (
            place
            for place, other in enumerate(cells[number:], number)
            if other["cell_type"] == "code"
            and all("".join(other["source"]).count(piece) == 1 for piece in pieces)
        )
        if (place := next(later, None)) is None:
            raise ValueError(f"no code cell holds each of {pieces} once")
        found.append((number, place, terms))
    return found


def mark(app, docname, source):
    """Give the terms of a notebook their classes, before it is read."""
    if app.builder.format != "html" or '"terms"' not in source[0]:
        return
    book = json.loads(source[0])
    if "cells" not in book:
        return
    for number, _, terms in told(book["cells"]):
        cell = book["cells"][number]
        text = "".join(cell["source"])
        for n, term in enumerate(terms):
            text = text.replace(term["tex"], rf"\class{{term term-{number}-{n}}}{{{term['tex']}}}")
        data = json.dumps({"cell": number, "terms": terms}).replace("<", "\\u003c")
        script = f'<script type="application/json" class="terms">{data}</script>'
        cell["source"] = f"{text}\n\n{script}\n"
    source[0] = json.dumps(book)


def setup(app):
    """Register with Sphinx."""
    app.connect("source-read", mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
