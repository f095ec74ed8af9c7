"""`headroom crds`: the kinds of Headroom, ready to be applied to a cluster."""

from __future__ import annotations


def crds() -> None:
    """Print the CustomResourceDefinitions of all kinds.

    Example: headroom crds | kubectl apply --server-side -f -
    """
    import yaml

    from headroom.api.crd import crd
    from headroom.api.kinds import KINDS

    documents = [crd(kind) for kind in KINDS.values()]
    print(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120), end="")
