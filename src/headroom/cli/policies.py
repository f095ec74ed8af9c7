"""`headroom policies`: the admission policies of Headroom, ready to be applied to a cluster."""

from __future__ import annotations

from headroom.cli.options import ManifestForm, Manifests


def policies(form: ManifestForm = Manifests.yaml) -> None:
    """Print the admission policies and their bindings.

    The kinds must be there first: see `headroom crds`.

    Example: headroom policies | kubectl apply --server-side -f -
    """
    from headroom.api.policies import policies as made
    from headroom.cli import output

    output.as_manifests(made(), form)
