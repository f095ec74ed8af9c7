"""Texts as plain objects: what is read in one pass means what the whole of YAML says it means."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headroom.adapters import texts
from headroom.model.errors import Misconfigured

ALL_OF_YAML = b"\n---\nkind: Tagged\nvalue: !!str 1\n"
"""A document that only the whole of YAML can read, so all others of its text are read that way too."""
WORDS = (
    *("true", "True", "TRUE", "yes", "Yes", "on", "off", "No", "n", "y", "null", "Null", "~", ""),
    *("1", "-1", "+1", "0", "007", "0o7", "0x1F", "0b11", "1_000", "190:20:30", "1e3", "1.0e+3", "1.5", ".5", "."),
    *(".inf", "-.Inf", ".nan", "2026-01-31", "2026-01-31T12:00:00Z", "=", "<", "team-a", "100m", "a b", "日本"),
)


def values_of(text: bytes) -> list[dict[str, Any]] | str:
    try:
        return [each.value for each in texts.objects("a.yaml", text)]
    except Misconfigured as refused:
        return str(refused)


def is_same(text: bytes) -> bool:
    """Whether a text means the same, read in one pass and by the whole of YAML."""
    whole = values_of(text + ALL_OF_YAML)
    assert isinstance(whole, str) or whole[-1] == {"kind": "Tagged", "value": "1"}
    return repr(values_of(text)) == repr(whole if isinstance(whole, str) else whole[:-1])


@pytest.mark.parametrize("word", WORDS)
def test_words_mean_what_yaml_says(word: str) -> None:
    assert is_same(f"kind: A\nplain: {word}\nquoted: '{word}'\nlist: [a, '{word}']\nblock: |\n  {word}\n".encode())


@pytest.mark.parametrize(
    "text",
    [
        "kind: A\nvalue: &here [1, 2]\nagain: *here\n",
        "base: &base {a: 1, kind: A}\nkind: A\nmore: {<<: *base, b: 2}\n",
        "kind: A\n1: one\ntrue: yes\nnull: none\n2026-01-31: day\n",
        "kind: A\nvalue: !!binary aGVsbG8=\nother: !!set {a, b}\n",
        "kind: A\nkind: B\n",
        "kind: A\nvalue: {a: 1, 'a': 2}\n",
        "%YAML 1.1\n---\nkind: A\n...\n---\n# nothing\n---\nkind: B\n",
        "kind: A\n? [a, b]\n: 1\n",
        "kind: A\nvalue: ! plain\n",
        "apiVersion: v1\nkind: PodList\nitems:\n- {metadata: {name: a}}\n- {kind: Other}\n",
        "",
        "# only a comment\n",
    ],
)
def test_the_rarer_forms_of_yaml_are_read_too(text: str) -> None:
    assert is_same(text.encode())


def test_a_number_as_a_key_is_text() -> None:
    assert values_of(b"kind: A\n1: one\n") == [{"kind": "A", "1": "one"}]


MEMBERS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.sampled_from(WORDS), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.text(max_size=6), MEMBERS, max_size=4), max_size=3), st.booleans())
def test_whatever_is_written_as_yaml_is_read_the_same_in_one_pass(documents: list[Any], flow: bool) -> None:
    text = yaml.safe_dump_all(documents, default_flow_style=flow, allow_unicode=True).encode()
    assert is_same(text)


@given(st.text(alphabet="a:- \n{}[]'\"|>#&*!<1,?%@`~=", max_size=40))
def test_noise_that_yaml_can_read_is_read_the_same_in_one_pass(noise: str) -> None:
    text = f"kind: A\nvalue: {noise}\n".encode()
    assert isinstance(values_of(text + ALL_OF_YAML), str) or is_same(text)


def test_texts_that_are_wrong_are_refused_by_line() -> None:
    assert "in line 3" in values_of(b"kind: A\na: b\n]: c\n")
    assert "line 3 begins with a tab" in values_of(b"kind: A\nmetadata:\n\tname: a\n")
