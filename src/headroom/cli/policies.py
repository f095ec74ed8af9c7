"""`headroom policies`: the admission policies of Headroom, ready to be applied to a cluster."""

from __future__ import annotations


def policies() -> None:
    """Print the admission policies and their bindings.

    The kinds must be there first: see `headroom crds`.

    Example: headroom policies | kubectl apply --server-side -f -
    """
    from headroom.api import generate
    from headroom.api.policies import policies as made

    print(generate.as_yaml(made()), end="")
