"""Writes the figures of bench/results into the pages that quote them: `python -m bench.figures [--check]`.

A page says `<!-- figures: NAME -->` and `<!-- end of figures -->`; whatever stands between is replaced by the table of that benchmark,
or by bench/results/NAME.md where a benchmark wrote its table itself.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from bench.results import FOLDER, ROOT

PAGES = (
    "docs/figures.md",
    "docs/accuracy.md",
    "docs/power.md",
    "docs/operating.md",
    "docs/decisions/0001-own-list-watch.md",
    "docs/decisions/0010-small-charts.md",
    "docs/decisions/0012-own-redfish-behind-one-guard.md",
    "docs/decisions/0014-pages-in-a-process-of-their-own.md",
    "docs/decisions/0016-own-cron-reader.md",
    "docs/decisions/0018-switching-by-account.md",
)
BLOCK = re.compile(r"(<!-- figures: ([a-z_-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def table(name: str) -> str:
    """One benchmark as Markdown."""
    own = FOLDER / f"{name}.md"
    if own.exists():
        return own.read_text()
    file = FOLDER / f"{name}.json"
    if not file.exists():
        return f"Not measured yet: `make bench NAME={name}`.\n"
    found: dict[str, Any] = json.loads(file.read_text())
    lines = ["| figure | value | goal | peer |", "|---|---|---|---|"]
    lines += [
        f"| {_cell(row['figure'])} | {row['value']:g} {row['unit']} | {_goal(row)} | {_peer(row)} |"
        for row in found["rows"]
    ]
    versions = ", ".join(f"{what} {number}" for what, number in found["versions"].items() if number)
    machine = found["machine"]
    where = f"{machine['cores']} cores, {machine['model']}, {machine['memoryGiB']} GiB"
    lines += ["", f"`make bench NAME={name}`, {found['date'][:10]}, commit {found['commit']}; {where}; {versions}."]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text with a bar in it would end the cell."""
    return text.replace("|", "\\|")


def _goal(row: dict[str, Any]) -> str:
    if row["goal"] is None:
        return ""
    is_met = row["value"] <= row["goal"] if row["sense"] == "max" else row["value"] >= row["goal"]
    bound = "at most" if row["sense"] == "max" else "at least"
    return f"{bound} {row['goal']:g}" + ("" if is_met else ", **missed**")


def _peer(row: dict[str, Any]) -> str:
    return f"{row['peer']}: {row['peerValue']:g}" if row["peer"] else ""


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check only say which differ."""
    different = []
    for name in PAGES:
        page = ROOT / name
        text = page.read_text()
        wanted = BLOCK.sub(lambda block: f"{block[1]}{table(block[2])}{block[3]}", text)
        if text != wanted:
            different.append(name)
            if "--check" not in arguments:
                Path(page).write_text(wanted)
    for name in different:
        print(("differs: " if "--check" in arguments else "wrote: ") + name)
    return 1 if different and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
