"""The book on paper: pages of the built book, bound. Run `make book` first."""

import book_pdf
import house
import pytest
from pypdf import PdfReader

pytestmark = pytest.mark.pages
SITE = house.ROOT / "_build" / "html"


@pytest.fixture(scope="module")
def bound(browser, tmp_path_factory):
    """Front page, the first two chapters and the glossary, bound; with what the binder returned."""
    few = ["book/intro", "book/01_fedavg", "book/02_heterogeneity", "book/glossary"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(house, "contents", lambda: few)
        out = tmp_path_factory.mktemp("pdf") / "book.pdf"
        pages = book_pdf.bind(browser, SITE, out)
    return PdfReader(out), pages, out


@pytest.fixture(scope="module")
def texts(bound):
    return [" ".join(page.extract_text().split()) for page in bound[0].pages]


def first_page(texts, title):
    """The number, from 0, of the page behind the contents that begins with a title."""
    return next(i for i, text in enumerate(texts) if i > 1 and text.startswith(title))


def test_every_page_carries_its_number(bound, texts):
    assert len(texts) == bound[1] > 30
    for number, text in enumerate(texts, 1):
        assert str(number) in text.split(), number


def test_contents_and_outline_lead_to_the_chapters(bound, texts):
    reader = bound[0]
    starts = {entry.title: reader.get_destination_page_number(entry) for entry in reader.outline
              if not isinstance(entry, list)}  # fmt: skip
    assert len(starts) == 4
    for title, page in starts.items():
        asked = title.split(". ")[-1]
        assert page == first_page(texts, asked), title
        assert f"{title} {page + 1}" in texts[1]


def test_a_link_to_another_page_leads_to_a_page_of_the_book_or_outside(bound):
    reader, within = bound[0], 0
    for page in reader.pages:
        for note in page.get("/Annots", []):
            note = note.get_object()
            within += "/Dest" in note
            address = str(note.get("/A", {}).get("/URI", ""))
            assert not address.startswith("file:"), address
    assert within > 4  # the contents alone have four


def test_solutions_stand_behind_all_else_of_their_chapter(texts):
    start, end = (
        first_page(texts, t)
        for t in ("How do clients learn together without", "Why does one model fail?")
    )
    before, solutions = " ".join(texts[start:end]).split(" Solutions ")
    assert "Summary" in before
    assert "Run time and references" in before
    for exercise in ("Exercise 1.1", "Exercise 1.2", "Exercise 1.3"):
        assert exercise in before
        assert exercise in solutions
    assert "# @title Solution" not in before


def test_the_whole_book_will_weigh_less_than_its_limit(bound):
    assert bound[2].stat().st_size < book_pdf.MOST / 8  # an eighth of its pages


def test_without_a_page_there_is_no_book(browser, tmp_path):
    with pytest.raises(SystemExit, match=r"lacks intro\.html.*make book"):
        book_pdf.bind(browser, tmp_path, tmp_path / "book.pdf")
    assert list(tmp_path.iterdir()) == []
