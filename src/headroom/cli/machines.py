"""GPU machines as k8s-gpu-autoprovision reads them: four environment variables each, in any of the usual forms.

For the prefix GPU_NODE_1 these are GPU_NODE_1_NAME, GPU_NODE_1_GPU_COUNT, GPU_NODE_1_SCALE_UP_ENDPOINT and
GPU_NODE_1_SCALE_DOWN_ENDPOINT. The prefix is free.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

FIELDS: Final = {
    "NAME": "name",
    "GPU_COUNT": "gpuCount",
    "SCALE_UP_ENDPOINT": "scaleUpEndpoint",
    "SCALE_DOWN_ENDPOINT": "scaleDownEndpoint",
}
# `_NAME` alone says nothing: half of all environments have such a variable.
_TELLING: Final = ("_GPU_COUNT", "_SCALE_UP_ENDPOINT", "_SCALE_DOWN_ENDPOINT")
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_VALUE: Final = r"""("[^"\n]*"|'[^'\n]*'|[^\s"']*)"""
_LINE: Final = re.compile(rf"(?:export[ \t]+)?{_NAME}=")
_DOCKER: Final = re.compile(r"docker[ \t]+run\b")
_ASSIGNMENT: Final = re.compile(rf"^[ \t]*(?:export[ \t]+)?({_NAME})={_VALUE}", re.MULTILINE)
_PAIR: Final = re.compile(rf"({_NAME})=(.*)", re.DOTALL)


class FoundMachine(NamedTuple):
    """One machine as it was found, complete or not."""

    label: str
    """How its owner knows it: the prefix of its variables, or its place in a list."""
    names: Mapping[str, str]
    """Each field by the name under which its owner wrote it."""
    fields: dict[str, Any]


def is_environment(text: str) -> bool:
    """Whether a text is an environment file or a `docker run` line, and no YAML."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return bool(_LINE.match(first) or _DOCKER.match(first))


def variables(text: str) -> dict[str, str]:
    """Every variable that a text sets, be it an environment file or a `docker run` line."""
    found = {name: value.strip("\"'") for name, value in _ASSIGNMENT.findall(text)}
    return found | (pairs(_of_docker(text)) if _DOCKER.search(text) else {})


def pairs(words: Iterable[Any]) -> dict[str, str]:
    """The variables among words such as NAME=value."""
    found = (_PAIR.fullmatch(str(word)) for word in words)
    return {each[1]: each[2] for each in found if each is not None}


def _of_docker(text: str) -> Iterator[str]:
    """What a `docker run` line gives to -e and --env, quoted as a shell reads it."""
    try:
        words = iter(shlex.split(text, comments=True))
    except ValueError:  # a quote without its end
        words = iter(text.split())
    for word in words:
        if word in ("-e", "--env"):
            yield next(words, "")
        elif word.startswith(("-e", "--env=")):
            yield word.removeprefix("--env=").removeprefix("-e")


def in_environment(variables: Mapping[str, Any]) -> list[FoundMachine]:
    """The machines that some variables describe, in the order of the variables."""
    prefixes: dict[str, None] = {}
    for name in variables:
        for ending in _TELLING:
            if name.endswith(ending) and name != ending:
                prefixes.setdefault(name.removesuffix(ending))
    return [_candidate(prefix, variables) for prefix in prefixes]


def _candidate(prefix: str, variables: Mapping[str, Any]) -> FoundMachine:
    names = {field: f"{prefix}_{ending}" for ending, field in FIELDS.items()}
    fields = {field: variables[name] for field, name in names.items() if variables.get(name) not in (None, "")}
    return FoundMachine(f"{prefix}_*", names, fields)


def in_node_groups(groups: list[Any]) -> list[FoundMachine]:
    """The machines in the chart's `nodeGroups`."""
    return [
        FoundMachine(
            f"nodeGroups[{index}]",
            {field: f"nodeGroups[{index}].{field}" for field in FIELDS.values()},
            dict(group) if isinstance(group, dict) else {},
        )
        for index, group in enumerate(groups)
    ]


def usable(candidate: FoundMachine) -> tuple[dict[str, Any] | None, str]:
    """The machine as a PowerPool has it, or None and why it is none."""
    fields = dict(candidate.fields)
    missing = [name for field, name in candidate.names.items() if field not in fields]
    if missing:
        return None, f"{candidate.label}: {', '.join(missing)} missing, so this machine is left out"
    count = fields["gpuCount"]
    if isinstance(count, str) and count.strip().isascii() and count.strip().isdigit() and len(count) < 10:
        fields["gpuCount"] = int(count)
    found = _problems(fields)
    if found:
        field, message = found
        return None, f"{candidate.label}: {candidate.names.get(field, field)} {message}, so this machine is left out"
    return fields, ""


def _problems(fields: dict[str, Any]) -> tuple[str, str] | None:
    """The first thing that a PowerPool would not take."""
    from headroom.api import schema
    from headroom.api.power import MachineSpec

    for problem in schema.check(schema.of(MachineSpec), fields, ""):
        return problem.field.lstrip("."), problem.message
    return None
