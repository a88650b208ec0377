"""What the chapters ask: predictions and checks have one form, which the page makes answerable."""

import json
import re
from collections import Counter

import house
import pytest

CHAPTERS = [path for path in house.notebooks() if path.parent == house.ROOT / "book"]
TEACHING = [path for path in CHAPTERS if re.match(r"\d|simulating", path.name)]

FOLD = re.compile(r"<details>\s*<summary>(.*?)</summary>\n\n(.*)\n\n</details>\s*", re.S)
LOOSE = r"(?m)^(?!>|#).*?(\b(?:Predict|Guess)\b[:,].*|\b[Ww]rite [^.\n]*down\b[^.\n]*[:?].*)"


def text_of(path) -> str:
    """Return what a notebook says in order, computed text as its code has it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = []
    for cell in cells:
        text = "".join(cell["source"])
        texts.append(text if cell["cell_type"] == "markdown" else text.replace("\\n", "\n"))
    return "\n\n".join(texts)


# ---------------------------------------------------------------- predictions


def wrong_predictions(text: str) -> list[str]:
    """Return what a page cannot make answerable, or what has no answer."""
    problems = [f"not in a quote: {found}" for found in re.findall(LOOSE, text)]
    quotes = re.findall(r"(?m)^> \*\*Predict\.\*\* .*(?:\n>.*)*", text)
    problems += [f"asks nothing: {quote}" for quote in quotes if "?" not in quote]
    for quote in quotes:
        choices = re.findall(r"(?m)^> - (.*)", quote)
        if len(set(choices)) != len(choices) or len(choices) == 1:
            problems.append(f"nothing to choose: {quote}")
    asked, waiting = False, None
    for mark in re.findall(r"(?m)^> \*\*Predict\.\*\*.*|<summary>After your guess.*", text):
        if mark.startswith(">"):
            if waiting:
                problems.append(f"no answer: {waiting}")
            asked, waiting = True, mark
        elif not asked:
            problems.append(f"an answer without a question: {mark}")
        else:
            waiting = None
        if "summary" in mark and not re.match(r"<summary>After your guess: [^*]+</summary>", mark):
            problems.append(f"a summary says what is in the fold, without stars: {mark}")
    return problems + ([f"no answer: {waiting}"] if waiting else [])


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_predictions_have_the_form_and_an_answer(path):
    assert wrong_predictions(text_of(path)) == []


def test_every_chapter_asks_before_it_tells():
    found = {path.stem: text_of(path).count("> **Predict.** ") for path in TEACHING}
    assert min(found.values()) >= 1, found


ASKED = "> **Predict.** Who wins?\n>\n> - A.\n> - B.\n"
TOLD = "\n<details><summary>After your guess: who won</summary>\n\nA.\n\n</details>\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ASKED + TOLD, None),
        (ASKED + TOLD + TOLD, None),
        (ASKED, "no answer"),
        (ASKED + ASKED + TOLD, "no answer"),
        (TOLD + ASKED + TOLD, "an answer without a question"),
        ("Look. Predict: who wins?\n" + TOLD, "not in a quote"),
        ("Before you move, write down for each: who wins?\n", "not in a quote"),
        (ASKED.replace("?", ".") + TOLD, "asks nothing"),
        (ASKED.replace("> - B.\n", "") + TOLD, "nothing to choose"),
        (ASKED.replace("B.", "A.") + TOLD, "nothing to choose"),
        (ASKED + TOLD.replace("After your guess: who won", "**After your guess**"), "no answer"),
        (ASKED + TOLD.replace("who won", "**who won**"), "without stars"),
        (ASKED + TOLD.replace(": who won", ""), "without stars"),
    ],
)
def test_the_form_of_a_prediction_is_checked(text, said):
    problems = wrong_predictions(text)
    assert (not problems) if said is None else any(said in problem for problem in problems)


# ---------------------------------------------------------------- checks


def folds(text: str) -> list[str]:
    """Return the outer folds of a text, each with all that is in it."""
    found, depth, start = [], 0, 0
    for mark in re.finditer("<details>|</details>", text):
        depth += 1 if mark[0] == "<details>" else -1
        if depth == 1 and mark[0] == "<details>":
            start = mark.start()
        elif depth == 0:
            found.append(text[start : mark.end()])
    return found


def checks(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the checks of a page: question, then what each answer says and what it is told."""
    _, found, section = text.partition("## Check yourself\n")
    assert found, "no checks"
    section = re.split(r"(?m)^## ", section)[0]
    asked = re.split(r"(?m)^(?=\*\*\d\. )", section)[1:]
    return [
        (one.split("\n")[0], [FOLD.fullmatch(fold).groups() for fold in folds(one)])
        for one in asked
    ]


def wrong_check(question: str, options: list[tuple[str, str]]) -> list[str]:
    """Return what a check lacks: three answers, one right, a second question to each wrong one."""
    problems = []
    if not re.fullmatch(r"\*\*\d\. .*\?\*\*", question):
        problems.append(f"a question, whole and bold: {question}")
    if len(options) != 3:
        problems.append(f"three answers, not {len(options)}: {question}")
    if sum(told.startswith("Yes.") for _, told in options) != 1:
        problems.append(f'one right answer, told "Yes.": {question}')
    for answer, told in options:
        inner = folds(told)
        asks = re.findall(r"(?m)^\*\*Second question\.\*\* .*\?$", told)
        if told.startswith("Yes."):
            if inner or asks:
                problems.append(f"a right answer needs no second question: {answer}")
        elif len(asks) != 1 or len(inner) != 1 or FOLD.fullmatch(inner[0])[1] != "Answer":
            problems.append(f"a wrong answer leads to one second question: {answer}")
        if "**" in answer or "$" in answer:
            problems.append(f"a summary is plain text: {answer}")
    return problems


@pytest.mark.parametrize("path", TEACHING, ids=lambda path: path.stem)
def test_checks_have_the_form(path):
    found = checks(text_of(path))
    assert len(found) == 3
    assert [problem for one in found for problem in wrong_check(*one)] == []


def test_right_answers_are_spread_over_the_places():
    """Where no script shuffles them, the place does not give them away."""
    places = {
        path.stem: [
            [told.startswith("Yes.") for _, told in options].index(True) + 1
            for _, options in checks(text_of(path))
        ]
        for path in TEACHING
    }
    assert all(len(set(found)) > 1 for found in places.values()), places
    count = Counter(place for found in places.values() for place in found)
    assert max(count.values()) - min(count.values()) <= 2, count


NO = "No.\n\n**Second question.** Why?\n\n<details><summary>Answer</summary>\n\nSo.\n\n</details>"
GOOD = [("a", NO), ("b", "Yes. It is."), ("c", NO)]


@pytest.mark.parametrize(
    ("question", "options", "said"),
    [
        ("**1. Who?**", GOOD, None),
        ("**1.** Who?", GOOD, "whole and bold"),
        ("**1. Tell.**", GOOD, "whole and bold"),
        ("**1. Who?**", GOOD[:2], "three answers"),
        ("**1. Who?**", [GOOD[0], GOOD[2], GOOD[0]], "one right answer"),
        ("**1. Who?**", [GOOD[0], GOOD[1], GOOD[1]], "one right answer"),
        ("**1. Who?**", [("a", "No."), *GOOD[1:]], "second question"),
        ("**1. Who?**", [("a", NO + "\n\n" + NO), *GOOD[1:]], "second question"),
        ("**1. Who?**", [GOOD[0], ("b", "Yes." + NO), GOOD[2]], "needs no second"),
        ("**1. Who?**", [("$a$", NO), *GOOD[1:]], "plain text"),
    ],
)
def test_the_form_of_a_check_is_checked(question, options, said):
    problems = wrong_check(question, options)
    assert (not problems) if said is None else any(said in problem for problem in problems)
