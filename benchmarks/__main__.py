"""Run every benchmark, each in a process of its own, and gather docs/benchmarks.md.

python -m benchmarks [NAME ...] runs some of them; their sections replace the old ones.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import commit, machine

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
NAMES = sorted(
    path.stem for path in HERE.glob("*.py") if "def run() -> Report" in path.read_text()
)

_HEAD = """# Benchmarks

One section per claim, each measured against named rivals in the same run; `make bench` writes this
page again. Read the ratios, not the digits: they hold for one machine on one day.
"""


def main(names: list[str]) -> int:
    """Run, print and keep; returns how many failed."""
    failed = 0
    sections = _sections()
    for name in names or NAMES:
        print(f"== {name}", flush=True)
        code = (
            f"import json; from benchmarks.{name} import run; "
            "print('REPORT ' + json.dumps(run().markdown()))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=False
        )
        reports = re.findall(r"^REPORT (.*)$", done.stdout, re.MULTILINE)
        if done.returncode or not reports:
            failed += 1
            print(done.stdout[-2000:], done.stderr[-4000:], sep="\n")
            continue
        text = json.loads(reports[-1])
        print(text)
        measured = f"`python -m benchmarks {name}`, commit {commit()}, {machine()}\n"
        sections[name] = f"## {_title(name)}\n\n{text}\n{measured}"
    PAGE.write_text(_HEAD + "\n" + "\n".join(sections[name] for name in sorted(sections)))
    return failed


def _sections() -> dict[str, str]:
    """The sections of the page as it is, by benchmark name."""
    if not PAGE.exists():
        return {}
    parts = re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for part in parts:
        name = re.search(r"`python -m benchmarks (\w+)`", part)
        if name is not None and name[1] in NAMES:
            found[name[1]] = part.rstrip() + "\n"
    return found


def _title(name: str) -> str:
    module = importlib.import_module(f"benchmarks.{name}")
    return (module.__doc__ or name).splitlines()[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
