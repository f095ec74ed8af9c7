"""Finds where a sentence is read back as if it were state: compared, looked up, matched or taken apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

SENTENCES = {"message", "sentence", "unschedulable_message", "because"}
"""Fields that hold a sentence, of ours or of others."""

_TAKING_APART = {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "splitlines"} | {
    *("find", "rfind", "index", "rindex", "count", "removeprefix", "removesuffix", "replace", "translate"),
}
"""Stripping, lower case and a cut at a limit shape a sentence for people; they count where the outcome is compared."""

_LOOKING = {"get", "pop", "setdefault", "search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
"""Of a mapping, or of a pattern."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ReadBack(NamedTuple):
    """One place."""

    line: int
    function: str
    """Empty outside of all."""


def read_back(source: str) -> list[ReadBack]:
    """Every place of a module, from top to bottom."""
    tree = ast.parse(source)
    named = [(node.name, node) for node in ast.walk(tree) if isinstance(node, _Function)]
    found = {ReadBack(line, name) for name, part in (("", tree), *named) for line in _Part(part).lines()}
    return sorted(found)


class _Part:
    """One function without those inside it, or a module without its functions; it knows who holds a sentence there."""

    def __init__(self, part: ast.AST) -> None:
        self._nodes = sorted(_inside(part), key=lambda node: getattr(node, "lineno", 0))
        self._aliases: set[str] = set()
        for _ in range(2):  # so that an alias of an alias is known whatever the order
            for node in self._nodes:
                self._note(node)

    def lines(self) -> Iterator[int]:
        for node in self._nodes:
            if isinstance(node, ast.expr | ast.stmt) and self._reads(node):
                yield node.lineno

    def _reads(self, node: ast.AST) -> bool:
        match node:
            case ast.Compare():
                return self._holds(node)
            case ast.Match(subject=subject):
                return self._holds(subject)
            case ast.Subscript(value=value, slice=ast.Slice(lower=None, step=None)):
                return False  # cut at a limit
            case ast.Subscript(value=value, slice=key):
                return self._is_sentence(value) or self._is_sentence(key)
            case ast.Attribute(value=value, attr=name):
                return name in _TAKING_APART and self._is_sentence(value)
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=given):
                looks = name in _LOOKING or (isinstance(value, ast.Name) and value.id == "re")
                return looks and any(map(self._is_sentence, given))
        return False

    def _is_named(self, node: ast.AST) -> bool:
        match node:
            case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=name)):
                return name in SENTENCES
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
                return name in SENTENCES
            case ast.Name(id=name):
                return name in self._aliases
        return False

    def _holds(self, node: ast.AST) -> bool:
        return any(map(self._is_named, ast.walk(node)))

    def _is_sentence(self, node: ast.AST | None) -> bool:
        """Whether the value of an expression is a sentence, or made of one."""
        if node is None or self._is_named(node):
            return node is not None
        match node:
            case ast.Call(func=ast.Name(id="str"), args=parts) | ast.BoolOp(values=parts) | ast.JoinedStr(values=parts):
                return any(map(self._is_sentence, parts))
            case ast.Call(func=ast.Attribute(value=part)) | ast.Subscript(value=part):
                return self._is_sentence(part)
            case ast.FormattedValue(value=part) | ast.NamedExpr(value=part):
                return self._is_sentence(part)
            case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
                return self._is_sentence(one) or self._is_sentence(other)
        return False

    # --- aliases ----------------------------------------------------------------------------------------------------------

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                self._bind(target, value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                for each in _members(value):
                    self._bind(target, each)

    def _bind(self, target: ast.AST, value: ast.AST | None) -> None:
        if isinstance(target, ast.Name) and self._is_sentence(value):
            self._aliases.add(target.id)
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._bind(one, its)


def _members(value: ast.AST) -> list[ast.expr]:
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return value.elts
    return [value.elt] if isinstance(value, ast.ListComp | ast.SetComp | ast.GeneratorExp) else []


def _inside(part: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(part):
        if not isinstance(node, _Function):
            yield node
            yield from _inside(node)
