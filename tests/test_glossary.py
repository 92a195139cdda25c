"""The glossary keeps its form: tables that parse, one row per word, in alphabetical order."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.documents import ROOT

AREAS = [
    "Streams and time",
    "Queries and answers",
    "Synopses",
    "Memory and overload",
    "Archive",
    "Operations",
]
_HEAD = "| word | meaning here | elsewhere | in the code |"
_RULE = "|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table; cells: word, meaning, elsewhere, code."""

    area: str
    cells: tuple[str, ...]

    @property
    def word(self) -> str:
        """The word that the row defines."""
        return self.cells[0]

    @property
    def also_written(self) -> list[str]:
        """Other words that older text uses for the same thing."""
        listed = re.search(r"Also written: ((?:\*[^*]+\*(?:, )?)+)\.", self.cells[1])
        return [] if listed is None else re.findall(r"\*([^*]+)\*", listed[1])


def tables() -> dict[str, list[str]]:
    """The lines of the glossary's tables by the heading of their area."""
    found: dict[str, list[str]] = {}
    area = ""
    for line in (ROOT / "docs/glossary.md").read_text().splitlines():
        if line.startswith("## "):
            area = line.removeprefix("## ")
            found[area] = []
        elif line.startswith("|"):
            found[area].append(line)
    return found


def rows() -> list[Row]:
    """All rows of the glossary, in the order of the page."""
    return [
        Row(area, tuple(cell.strip() for cell in line.strip("|").split("|")))
        for area, lines in tables().items()
        for line in lines[2:]
    ]


def test_each_area_has_one_table_with_the_same_head():
    assert list(tables()) == AREAS
    assert {tuple(lines[:2]) for lines in tables().values()} == {(_HEAD, _RULE)}


def test_every_row_has_four_filled_cells():
    wrong = [row.cells for row in rows() if len(row.cells) != 4 or not all(row.cells)]
    assert rows()
    assert not wrong


def test_no_word_is_defined_twice_not_even_as_another_words_synonym():
    words = [row.word.casefold() for row in rows()]
    assert not {word for word in words if words.count(word) > 1}
    synonyms = {other.casefold() for row in rows() for other in row.also_written}
    assert not synonyms & set(words)


def test_every_list_of_other_words_is_readable():
    claimed = [row.word for row in rows() if "Also written" in row.cells[1]]
    assert claimed == [row.word for row in rows() if row.also_written]


@pytest.mark.parametrize("area", AREAS)
def test_words_are_in_alphabetical_order(area):
    words = [row.word for row in rows() if row.area == area]
    assert words == sorted(words, key=str.casefold)
