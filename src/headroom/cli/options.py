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
    list[Path] | None, typer.Option("--file", "-f", metavar="FILE", help="Manifests, repeatable; - is stdin.")
]
FilesInstead = Annotated[
    list[Path] | None, typer.Option("--file", "-f", metavar="FILE", help="Look into manifests, not a cluster.")
]
MoreFiles = Annotated[
    list[Path] | None, typer.Argument(metavar="FILE", help="Manifests, as with --file.", show_default=False)
]
Output = Annotated[Form, typer.Option("--output", "-o", help="A table for people, json or yaml for programs.")]
ManifestForm = Annotated[Manifests, typer.Option("--output", "-o", help="yaml, or json as one List.")]
Now = Annotated[
    str,
    typer.Option(
        "--now",
        metavar="TIME",
        help="The moment to decide for, such as 2026-01-31T12:00:00Z; UTC unless it has an offset. Default: the present.",
    ),
]
Kubeconfig = Annotated[str | None, typer.Option(metavar="PATH", help="The kubeconfig; else as kubectl finds it.")]
Context = Annotated[str | None, typer.Option(metavar="NAME", help="The context of the kubeconfig.")]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="The operator's namespace, headroom-system if not set.")
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="Look into what `headroom snapshot` or `demo --snapshot` wrote; - is stdin."
    ),
]
