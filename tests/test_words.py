"""The words that people read are those of docs/glossary.md: in pages, outputs of commands, sources and deployed manifests."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sentences

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
WIDEST = 100

# Written by commands: what they say is read where it is made.
GENERATED = ("docs/reference/", "bench/results/", "src/", "tests/", ".")
PAGES = sorted(
    name
    for path in ROOT.rglob("*.md")
    if not (name := path.relative_to(ROOT).as_posix()).startswith(GENERATED) and path != GLOSSARY
)
OUTPUTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/golden/*.txt"))
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src/headroom").rglob("*.py"))
MANIFESTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").rglob("*.yaml"))

EXACT: frozenset[str] = frozenset({"tests/cli/golden/bench-report.txt", "tests/cli/golden/offers.txt"})
"""Measurements, and prices that are compared: more than two decimals tell something."""
FENCED = re.compile(r"^(?P<fence>```|~~~).*?^(?P=fence)[^\n]*$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:(?: {4}|\t)[^\n]*\n|\n(?= {4}))+", re.MULTILINE)
FIGURES = re.compile(r"<!-- figures: .*?<!-- end of figures -->", re.DOTALL)
CODE = re.compile(r"`[^`]*`")
PERCENT = re.compile(r"\d (?=%)")
# A moment, an address, and the output of another program are exact.
UNROUNDED = re.compile(r"(?<![\d.:T])\d+\.\d{3,}(?![\d.]*[Z\w])")


def better_words() -> dict[str, str]:
    """What nobody says, and what to say instead."""
    found: dict[str, str] = {}
    for line in GLOSSARY.read_text().splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) > 1:
            say = cells[-2].replace("**", "")
            found |= {phrase.lower(): say for phrase in re.findall(r"`([^`]+)`", cells[-1]) if phrase != "80 %"}
    return found


WORDS = better_words()
HABITS = re.compile(
    r"\b(?:"
    + "|".join(sorted((re.escape(each).replace(r"\ ", r"\s+") for each in WORDS), key=len, reverse=True))
    + r")\b",
    re.IGNORECASE,
)


def blanked(text: str, *patterns: re.Pattern[str]) -> str:
    """The text with what the patterns find left out, each line where it was."""
    for pattern in patterns:
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


def prose(page: str) -> str:
    return blanked((ROOT / page).read_text(), FIGURES, FENCED, INDENTED, CODE)


def line_of(text: str, hit: re.Match[str]) -> int:
    return text.count("\n", 0, hit.start()) + 1


def habits(name: str, text: str) -> list[str]:
    """Each as file, line, what stands there, and the better word."""
    found = []
    for hit in HABITS.finditer(text):
        said = " ".join(hit[0].split())
        found.append(f'{name}:{line_of(text, hit)}: "{said}": say "{WORDS[said.lower()]}"')
    spaced = [f"{name}:{line_of(text, hit)}: write 80%, without a space" for hit in PERCENT.finditer(text)]
    return found + spaced


def spoken(source: str) -> Iterator[tuple[int, str]]:
    """What a source says, with the line where it begins: comments, docstrings and messages; in a message `{}` is for what it names."""
    pieces = set[ast.AST]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.JoinedStr(values=parts):
                pieces.update(parts)
                yield (
                    node.lineno,
                    "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in parts),
                )
            case ast.Constant(value=str(text)) if node not in pieces:
                yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def too_wide(name: str, text: str) -> list[str]:
    """Lines of prose; a table row, and a word that is itself too long, cannot be wrapped."""
    lines = blanked(text, FIGURES, FENCED, INDENTED).splitlines()
    return [
        f"{name}:{number}: {len(line)} characters; wrap it at {WIDEST}"
        for number, line in enumerate(lines, start=1)
        if len(line) > WIDEST and not line.lstrip().startswith("|") and " " in line.strip()[:WIDEST].lstrip("-# ")
    ]


def unrounded(name: str, text: str) -> list[str]:
    return [
        f"{name}:{line_of(text, hit)}: {hit[0]}: at most two decimals for people" for hit in UNROUNDED.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_speaks_the_words_of_the_glossary(page: str) -> None:
    found = habits(page, prose(page)) + too_wide(page, (ROOT / page).read_text())
    assert found == []


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_speaks_the_words_of_the_glossary(output: str) -> None:
    text = (ROOT / output).read_text()
    found = habits(output, text) + ([] if output in EXACT else unrounded(output, text))
    assert found == []


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_speaks_the_words_of_the_glossary(source: str) -> None:
    found = [habit for line, text in spoken((ROOT / source).read_text()) for habit in habits(f"{source}:{line}", text)]
    assert found == []


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_speaks_the_words_of_the_glossary(manifest: str) -> None:
    """Descriptions of fields, messages of rules and policies, and comments."""
    assert habits(manifest, (ROOT / manifest).read_text()) == []


def test_no_sentence_is_kept_of_a_test_that_is_gone() -> None:
    modules = sorted((ROOT / "tests/core").glob("test_*.py"))
    assert [f"{module.name}: {each}" for module in modules for each in sentences.stale(module)] == []
    assert {path.name for path in (ROOT / "tests/core/golden").iterdir()} <= {
        sentences.golden_of(module).name for module in modules
    }


def test_comments_docstrings_and_messages_are_read() -> None:
    source = '"""Pods are\nlet go."""\nsaid = f"{pod} is held by budget {name}"  # who waits\n'
    found = [each for line, text in spoken(source) for each in habits(f"a.py:{line}", text)]
    assert [each.partition('"')[2].partition('"')[0] for each in found] == ["let go", "held by budget", "who waits"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The quota\nis reached.", "over quota"),
        ("Pods that wait are listed.", "queued"),
        ("It is 80 % of the quota.", "without a space"),
    ],
)
def test_a_habit_is_found_with_the_better_word(text: str, said: str) -> None:
    (found,) = habits("a.md", text)
    assert found.startswith("a.md:1: ")
    assert said in found


def test_what_is_right_is_not_found() -> None:
    assert habits("a.md", "Queued pods are released; 80% of the GPUs are allocated.") == []
    assert too_wide("a.md", f"| {'a cell ' * 20}|\n\n    {'code ' * 30}\n") == []
    assert unrounded("a.txt", "At 2026-11-15T13:03:00.001Z 10.0.0.123 had 1.25 GPU-hours in v1.36.200.") == []


def test_a_long_line_and_a_long_number_are_found() -> None:
    assert too_wide("a.md", f"short\n{'a word ' * 20}\n") == ["a.md:2: 140 characters; wrap it at 100"]
    assert unrounded("a.txt", "\n48.000 GPU-hours") == ["a.txt:2: 48.000: at most two decimals for people"]
