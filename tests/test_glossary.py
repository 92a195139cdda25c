"""Checks of the glossary: form of its tables, one row per word, words in use, existing code."""

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
PACKAGES = ["shedder", "synopses", "allocator", "spark_ingest", "benchmarks"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table. cells: word, meaning, elsewhere, code."""

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
    """Return the lines of the glossary's tables by the heading of their area."""
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
    """Return all rows of the glossary, in the order of the page."""
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


def test_every_path_in_the_last_column_exists():
    named = {row.word: re.findall(r"`([^`]+)`", row.cells[3]) for row in rows()}
    assert all(named.values())
    assert not [
        (word, path)
        for word, paths in named.items()
        for path in paths
        if not (ROOT / path).exists() or path.endswith("/") != (ROOT / path).is_dir()
    ]


@pytest.mark.slow
def test_every_word_is_used_in_docs_or_code():
    used = used_text()
    assert not [row.word for row in rows() if not is_used(row.word.lower(), used)]


def used_text() -> str:
    """Return docs and code except the glossary in lower case, unchanged and with split names.

    File names count too, and so do the words in LandmarkWindow and in drop_policy.
    """
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("proto/**/*.proto")]
    files.remove(ROOT / "docs/glossary.md")
    files += [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    whole = "\n".join(f"{path.relative_to(ROOT)}\n{path.read_text()}" for path in files)
    cut = re.sub(r"[\s_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", whole))
    return f"{whole}\n{cut}".lower()


def is_used(word: str, text: str) -> bool:
    """Return whether the text has the word, or its plural, as a word of its own."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        end += text[end : end + 1] == "s"
        if not text[at - 1 : at].isalnum() and not text[end : end + 1].isalnum():
            return True
        at = text.find(word, at + 1)
    return False
