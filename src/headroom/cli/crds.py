"""`headroom crds`: the kinds of Headroom, ready to be applied to a cluster."""

from __future__ import annotations

from headroom.cli.options import ManifestForm, Manifests


def crds(form: ManifestForm = Manifests.yaml) -> None:
    """Print the CustomResourceDefinitions of all kinds.

    The list includes the kinds that only the operator writes.

    Example: headroom crds | kubectl apply --server-side -f -
    """
    from headroom.api.crd import crd
    from headroom.api.kinds import DEFINITIONS
    from headroom.cli import output

    output.as_manifests((crd(kind) for kind in DEFINITIONS.values()), form)
