"""`headroom policies`: the admission policies of Headroom, ready to be applied to a cluster."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from headroom.cli.options import ManifestForm, Manifests
from headroom.model.errors import Misconfigured


def policies(
    account: Annotated[
        str | None,
        typer.Option(
            "--account",
            metavar="USER",
            help="The operator's user name; by default system:serviceaccount:headroom-system:headroom.",
        ),
    ] = None,
    form: ManifestForm = Manifests.yaml,
) -> None:
    """Print the admission policies and their bindings.

    Apply the kinds first: see `headroom crds`. One of the policies, headroom-operator, limits what the operator's own account may change.

    Example: headroom policies | kubectl apply --server-side -f -
    """
    from headroom.api.policies import ACCOUNT
    from headroom.api.policies import policies as made
    from headroom.cli import output

    user = ACCOUNT if account is None else account
    if not re.fullmatch(r"[A-Za-z0-9.:@/_-]+", user):
        raise Misconfigured(f"reading --account {user!r}: it is no user name such as {ACCOUNT}")
    output.as_manifests(made(user), form)
