"""The whole book as one PDF: the built pages, printed by a browser and bound with pypdf.

``make pdf`` runs this after ``make book``. Each page is printed as a reader would print it, light
and with its folds open; its solutions stand at its end. The bound book has a title page, contents
with page numbers, an outline, and links that lead to pages of the book instead of files.
"""

import html
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import house
from playwright.sync_api import Browser, sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, NameObject

MOST = 20_000_000  # bytes
PAPER = {
    "format": "A4",
    "margin": {"top": "18mm", "bottom": "20mm", "left": "18mm", "right": "18mm"},
}
# A chapter's solutions go to its end, under the names of their exercises.
AT_THE_END = """() => {
  const article = document.querySelector("article.bd-article > section");
  const solutions = [];
  let exercise = "";
  for (const part of article.querySelectorAll("p, div.cell, details")) {
    const name = part.matches("p") && /^Exercise [\\w.]+/.exec(part.textContent);
    if (name) exercise = name[0];
    const said = part.querySelector(":scope > details > summary, :scope > summary");
    if (/solution/i.test(said?.textContent)) solutions.push([exercise, part]);
  }
  if (!solutions.length) return 0;
  const end = document.createElement("section");
  end.innerHTML = "<h2>Solutions</h2>";
  let last = "";
  for (const [name, part] of solutions) {
    if (name !== last) {
      const title = document.createElement("h3");
      title.textContent = last = name;
      part.prepend(title);
    }
    end.append(part);
  }
  article.append(end);
  for (const fold of [...end.querySelectorAll("details")].reverse()) {
    fold.querySelector(":scope > summary").remove();
    fold.replaceWith(...fold.childNodes); // a fold would not go over a page's end
  }
  return solutions.length;
}"""
READY = """async () => {
  for (const picture of document.images) picture.loading = "eager";
  await Promise.all([...document.images].map((picture) => picture.decode().catch(() => {})));
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
}"""
STYLE = """@page { size: A4 }
@media print {
  .bd-header, .bd-header-article, .bd-sidebar, .prev-next-footer, footer, .lecture-bar, .headerlink,
  .progress-mark, .copybtn, .toggle-button, .pst-async-banner-revealer, #pst-back-to-top,
  #jb-print-toc, #print-main-content h2, details:not([open]) { display: none !important }
  h1, h2, h3, h4 { break-after: avoid !important }
  .cell, .cell_input, .cell_output, .cell .highlight, .cell pre
    { display: block !important; break-inside: auto !important; overflow: visible !important }
  .bd-article-container, .bd-content, .bd-article
    { max-width: none !important; padding: 0 !important }
  html { font-size: 13px !important }
  summary { list-style: none }
}"""


def _pages(site: Path) -> list[Path]:
    """The files of the book's pages, in the order of its contents."""
    found = [site / f"{name}.html" for name in house.contents()]
    if missing := [path.name for path in found if not path.exists()]:
        sys.exit(
            f"The built book lacks {', '.join(missing)}: run `make book` (python tools/house.py"
            " book) first."
        )
    return found


def _printed(browser: Browser, paths: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Each page's title and its print."""
    for path in paths:
        page = browser.new_page(viewport={"width": 900, "height": 1200}, reduced_motion="reduce")
        page.goto(path.as_uri(), wait_until="load")
        page.add_style_tag(content=STYLE)
        page.evaluate(AT_THE_END)
        page.emulate_media(media="print", color_scheme="light")
        page.evaluate("async () => { await new Promise((done) => setTimeout(done, 300)) }")
        page.evaluate(READY)
        name = page.query_selector(".chapter-name")
        title = page.text_content("h1").removesuffix("#").strip()
        title = f"{name.text_content()}. {title}" if name else title
        yield title, page.pdf(**PAPER, outline=True, tagged=True)
        page.close()


def _drawn(browser: Browser, text: str) -> bytes:
    """The print of a text in HTML."""
    page = browser.new_page()
    page.set_content(text)
    made = page.pdf(**PAPER)
    page.close()
    return made


def _front(browser: Browser, rows: list[tuple[str, Path, int]], shift: int) -> bytes:
    """Title page and contents; ``shift`` is how many pages they take."""
    lines = "".join(
        f'<p><a href="{path.as_uri()}">{html.escape(title)}</a><span>{page + shift}</span></p>'
        for title, path, page in rows
    )
    return _drawn(
        browser,
        f"""<html lang="en"><title>Clustered Federated Learning</title><style>
        body {{ font: 11pt/1.5 sans-serif }} h1 {{ font-size: 28pt; margin-top: 80mm }}
        .contents {{ break-before: page }} p {{ display: flex; justify-content: space-between }}
        p, a {{ color: black; text-decoration: none; margin: 0 0 1.5mm }}
        span {{ padding-left: 8mm }}
        </style><h1>Clustered Federated Learning</h1><div>Text and figures: CC BY 4.0. Code:
        BSD-3-Clause.</div><div class="contents"><h2>Contents</h2>{lines}</div></html>""",
    )


def _numbers(browser: Browser, count: int) -> PdfReader:
    """As many pages as the book has, with nothing but their numbers."""
    lines = "".join(f"<div>{number}</div>" for number in range(1, count + 1))
    style = (
        "@page { size: A4; margin: 0 } body { margin: 0 }"
        "div { box-sizing: border-box; font: 9pt sans-serif; height: 290mm; overflow: hidden;"
        " padding-top: 284mm; text-align: center } div + div { break-before: page }"
    )
    page = browser.new_page()
    page.set_content(f"<style>{style}</style>{lines}")
    made = page.pdf(format="A4", prefer_css_page_size=True)
    page.close()
    return PdfReader(io.BytesIO(made))


def _lead_within(writer: PdfWriter, starts: dict[Path, int]) -> None:
    """Make links to files of the book links to its pages, and drop links to other files."""
    for page in writer.pages:
        kept = ArrayObject()
        for one in page.get("/Annots", ArrayObject()):
            note = one.get_object()
            action = note.get("/A", {})
            address = str(action.get("/URI", "")) if hasattr(action, "get") else ""
            if address.startswith("file:"):
                path = Path(unquote(address.removeprefix("file://").split("#")[0]))
                if path not in starts:
                    continue
                target = writer.pages[starts[path]].indirect_reference
                del note["/A"]
                note[NameObject("/Dest")] = ArrayObject([target, NameObject("/Fit")])
            kept.append(one)
        if kept or "/Annots" in page:
            page[NameObject("/Annots")] = kept


def bind(browser: Browser, site: Path, out: Path) -> int:
    """Bind the built book in ``site`` to one PDF at ``out``; return its pages."""
    paths = _pages(site)
    writer = PdfWriter()
    prints, rows, total = [], [], 0
    for (title, made), path in zip(_printed(browser, paths), paths, strict=True):
        reader = PdfReader(io.BytesIO(made))
        reader.root_object.pop("/StructTreeRoot", None)  # it cannot be bound, and weighs most
        rows.append((title, path, total + 1))
        prints.append((title, reader))
        total += len(reader.pages)
        print(f"  {title}: {len(reader.pages)} pages", flush=True)
    shift = len(PdfReader(io.BytesIO(_front(browser, rows, 0))).pages)
    writer.append(PdfReader(io.BytesIO(_front(browser, rows, shift))), import_outline=False)
    for title, reader in prints:
        writer.append(reader, outline_item=title)
    for page, number in zip(writer.pages, _numbers(browser, shift + total).pages, strict=True):
        page.merge_page(number)
        page.compress_content_streams()
    _lead_within(writer, {path: first - 1 + shift for _, path, first in rows})
    writer.add_metadata({"/Title": "Clustered Federated Learning"})
    writer.compress_identical_objects(remove_duplicates=True, remove_unreferenced=True)
    half = out.with_suffix(".half")
    writer.write(half)
    half.replace(out)  # whole or not at all
    return len(writer.pages)


def main() -> None:
    """Bind the book and say where it is."""
    out = house.ROOT / "_build" / "clustered-federated-learning.pdf"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=house.chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        pages = bind(browser, house.ROOT / "_build" / "html", out)
        browser.close()
    size = out.stat().st_size
    print(f"{out}: {pages} pages, {size / 1e6:.1f} MB")
    if size > MOST:
        sys.exit(f"That is more than {MOST / 1e6:.0f} MB.")


if __name__ == "__main__":
    main()
