"""The tour's last table is read on a terminal of 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from spark_ingest.demo.screen import beside_exact


def drawn(rows: list[dict[str, object]]) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(beside_exact("beside", rows))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_each_question_stands_once_above_its_values():
    row = {"exact": "16.4", "off": "1.22%", "source": "live sample", "held": True}
    rows = [
        row | {"tells": "delays", "what": "mean EV", "approximate": "16.2 ± 3.1 %"},
        row | {"tells": "delays", "what": "mean UA", "approximate": "9.5", "held": False},
        row | {"tells": "planes", "what": "tails", "approximate": "4,001 ± 1.9 %"},
    ]
    assert drawn(rows) == [
        "beside",
        "               answered exact off by held",
        "delays · live sample",
        "  mean EV  16.2 ± 3.1 %  16.4  1.22%  ✓",
        "  mean UA           9.5  16.4  1.22%  ✗",
        "planes · live sample",
        "  tails   4,001 ± 1.9 %  16.4  1.22%  ✓",
    ]


def test_long_texts_are_cut_to_the_width():
    wide = dict.fromkeys(("tells", "what", "approximate", "exact", "source"), "x" * 60)
    lines = drawn([wide | {"off": "0.1%", "held": True}])
    assert all(len(line) <= 80 for line in lines)
    assert any("…" in line for line in lines)
