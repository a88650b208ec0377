"""Pairs: who shares a submission, by the roster or by a cell of the notebook."""

import nbformat
import pytest
import small_assignment as small
from grader import intake, pairs, running
from grader.intake import Class as People
from grader.intake import Submission
from grader.results import Student
from nbformat.v4 import new_code_cell, new_notebook
from small_class import Class, make, plainly

ANA, BEN, CEM = (
    Student("García, Ana", "s1"),
    Student("O'Brien, Ben", "s2"),
    Student("Cem Ay", "s3"),
)
ROSTER = (ANA, BEN, CEM)


def submission(who: Student, source: str) -> Submission:
    """Return a submission with one code cell."""
    return Submission(who, "A5", new_notebook(cells=[new_code_cell(source)]), "digest")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('pair = "Ana", "Ben"', ("Ana", "Ben")),
        ('# we are two\npair = ["García, Ana", "O\'Brien, Ben"]', ("García, Ana", "O'Brien, Ben")),
        ('pair = ""  # if you are two, both names', ()),
        ("pair = ()", ()),
        ("pair = 3", ()),
        ('pair = "Ana", 3, " "', ("Ana",)),
        ('pair = "Ana", open("x")', ()),
        ("pair = (((", ()),
        ('repair = "Ana", "Ben"', ()),
        ('pair = "Ana\\ud800", "<b>Ben\\n"', ("Ana\ufffd", "<b>Ben")),
    ],
)
def test_a_cell_names_a_pair_and_is_not_run(source, names):
    assert pairs.named(submission(ANA, source).nb) == names


@pytest.mark.parametrize(
    ("handed_in", "partners", "said"),
    [
        ({ANA: '"Ana García", "Ben O\'Brien"'}, {ANA: (BEN,)}, ""),
        ({ANA: '"s1", "s2"'}, {ANA: (BEN,)}, ""),
        ({ANA: '"Ana García"'}, {ANA: ()}, ""),
        ({ANA: '"Ben O\'Brien", "Cem Ay"'}, {ANA: ()}, "and neither is García, Ana: nobody shares"),
        ({ANA: '"s1", "s2", "s3"'}, {ANA: ()}, "and a pair is two: nobody shares"),
        ({ANA: '"s1", "Zoe"'}, {ANA: ()}, "Zoe of its pair is not clear on the roster"),
        (
            {ANA: '"s1", "s2"', CEM: '"s3", "s2"'},
            {ANA: (), CEM: ()},
            "O'Brien, Ben is named as partner by Cem Ay and García, Ana: nobody shares",
        ),
        (
            {ANA: '"s1", "s2"', BEN: '"s2", "s1"'},
            {ANA: (), BEN: ()},
            "O'Brien, Ben of the same pair handed in alone",
        ),
        (
            {ANA: '"s1", "s2"', BEN: '""'},
            {ANA: (), BEN: ()},
            "O'Brien, Ben of the same pair handed in alone",
        ),
    ],
)
def test_what_a_notebook_says_of_its_pair(handed_in, partners, said):
    found = [submission(who, f"pair = {names}") for who, names in handed_in.items()]
    done = pairs.shared(found, People(ROSTER), {"A5"})
    assert {one.who: own.partners for one, own in zip(found, done, strict=True)} == partners
    told = done[0].looks + done[0].notes
    assert len(told) == bool(said)
    assert said in " ".join(told)
    doubted = [one for one in pairs.with_looks(found, done) if one.looks]
    assert bool(doubted) == ("nobody shares" in said or "not clear" in said)


def test_where_pairs_are_not_allowed_a_name_says_nothing():
    found = [submission(ANA, 'pair = "s1", "s2"')]
    assert pairs.shared(found, People(ROSTER), set()) == [pairs.Shared()]


def test_the_rosters_group_counts_and_a_contradiction_is_said():
    ana, ben = Student("Ana", "s1", group="g"), Student("Ben", "s2", group="g")
    people = People([ana, ben, CEM])
    for names, looks in (
        ('"Ana", "Ben"', ()),
        (
            '"Ana", "Cem Ay"',
            ("the roster pairs it with Ben, the notebook with Cem Ay: the roster counts",),
        ),
    ):
        (own,) = pairs.shared([submission(ana, f"pair = {names}")], people, {"A5"})
        assert own == pairs.Shared((ben,), looks)


def test_without_a_roster_folders_and_names_tell():
    ana, ben = Student("Ana"), Student("Ben Li")
    alone = [submission(ana, 'pair = "ana", "Li, Ben"')]
    assert pairs.shared(alone, People(), {"A5"}) == [pairs.Shared((Student("Li, Ben"),))]
    both = [*alone, submission(ben, 'pair = ""')]
    (own, other) = pairs.shared(both, People(), {"A5"})
    assert own.notes == ("Ben Li of the same pair handed in alone",)
    assert own.partners == other.partners == ()


def test_a_pairs_points_reach_both(tmp_path, monkeypatch):
    made = make(tmp_path / "made", monkeypatch)
    path = tmp_path / "made" / "assignments" / small.NAME / f"{small.NAME}.ipynb"
    nb = nbformat.read(path, 4)
    nb.metadata.clusterfl = {"pairs": True}
    nbformat.write(nb, path)
    monkeypatch.setattr(running, "run", plainly)
    course = Class(tmp_path, made)
    course.hand_in("Ana", total=f'pair = "Ana", "O\'Brien, Ben"\n{small.FIRST}')
    course.hand_in("Cem", total=f'pair = "Cem", "Ana"\n{small.FIRST}')
    found = course.grade()
    assert found["Ana"].partners == (Student("O'Brien, Ben"),)
    rows = {row["student"]: row for row in course.table()}
    assert rows["O'Brien, Ben"]["points"] == rows["Ana"]["points"] == "8"
    assert rows["O'Brien, Ben"]["notes"] == "together with Ana"
    assert "Ana of the same pair handed in alone" in rows["Cem"]["notes"]
    assert "8 of 10 points" in course.page(Student("O'Brien, Ben").key)
    course.hand_in("Dan", total=f'pair = "Dan", "O\'Brien, Ben"\n{small.FIRST}')
    found = course.grade()  # what was graded before is looked at again
    for name in ("Ana", "Dan"):
        assert found[name].partners == ()
        assert found[name].status == "graded, needs a look"
    assert "O'Brien, Ben" not in {row["student"] for row in course.table()}


def test_a_roster_finds_one_name_in_many_ways():
    for label in ("García, Ana", "Ana García", "GARCIA ANA", "s1"):
        assert pairs.meant(label, People(ROSTER), ()) == ANA
    twins = People([Student("Jo", "a"), Student("Jo", "b")])
    assert pairs.meant("Jo", twins, ()) is None
    assert intake.Class(ROSTER).find("Zoe")[1] == ("Zoe is not on the roster",)
