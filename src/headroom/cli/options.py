"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Form(StrEnum):
    """How a result is printed."""

    table = "table"
    json = "json"
    yaml = "yaml"

    @property
    def is_data(self) -> bool:
        """Whether it is for programs."""
        return self is not Form.table


class Manifests(StrEnum):
    """How manifests are printed: `kubectl apply` takes both."""

    yaml = "yaml"
    json = "json"


Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Manifests: a file, a folder, a pattern in quotes, or - for stdin; repeatable.",
    ),
]
FilesInstead = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Read manifests instead of a cluster: a file, a folder, a pattern in quotes, or - for stdin; repeatable.",
    ),
]
MoreFiles = Annotated[
    list[Path] | None, typer.Argument(metavar="FILE", help="Manifests, as with --file.", show_default=False)
]
Recursive = Annotated[bool, typer.Option("--recursive", "-R", help="Also read the subfolders of a folder.")]
Output = Annotated[Form, typer.Option("--output", "-o", help="A table for people, json or yaml for programs.")]
ManifestForm = Annotated[Manifests, typer.Option("--output", "-o", help="yaml, or json as one List.")]
Now = Annotated[
    str,
    typer.Option(
        "--now",
        metavar="TIME",
        help="The time to decide for, such as 2026-01-31T12:00:00Z; UTC unless it has an offset. Default: now.",
    ),
]
Kubeconfig = Annotated[
    str | None, typer.Option(metavar="PATH", help="The kubeconfig; by default, the one that kubectl uses.")
]
Context = Annotated[str | None, typer.Option(metavar="NAME", help="The context of the kubeconfig.")]
OperatorNamespace = Annotated[
    str | None,
    typer.Option(metavar="NAMESPACE", help="The operator's namespace; headroom-system by default."),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Show this namespace only.")]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Show all namespaces; this is the default.", show_default=False)
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="Read a snapshot from `headroom snapshot` or `demo --snapshot`; - is stdin."
    ),
]
