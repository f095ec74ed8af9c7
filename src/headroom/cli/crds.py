"""`headroom crds`: the kinds of Headroom, ready to be applied to a cluster."""

from __future__ import annotations


def crds() -> None:
    """Print the CustomResourceDefinitions of all kinds, that of the operator itself among them.

    Example: headroom crds | kubectl apply --server-side -f -
    """
    from headroom.api import generate
    from headroom.api.crd import crd
    from headroom.api.kinds import DEFINITIONS

    print(generate.as_yaml(crd(kind) for kind in DEFINITIONS.values()), end="")
