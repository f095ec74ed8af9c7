"""The paths of an API server that are no objects: health, version, and which kinds there are."""

from __future__ import annotations

from typing import Final

from headroom.adapters.kube.transport import Reply
from headroom.sim.answers import Body, PlainNotFound, json
from headroom.sim.catalog import Catalog, ResourceType

_VERBS: Final = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_HEALTH: Final = ("/readyz", "/livez", "/healthz")
VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "sim/headroom"}


def discovered(catalog: Catalog, path: str) -> Reply | None:
    """The answer to a discovery path; None for a path that means objects. Raises the 404 of what is not served."""
    path = path.rstrip("/")
    if path in _HEALTH:
        return Reply(status=200, body=b"ok", headers={"content-type": "text/plain; charset=utf-8"})
    if path == "/version":
        return json(200, VERSION)
    if path == "/api":
        return json(200, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    if path == "/apis":
        groups = [_group(name, versions) for name, versions in sorted(catalog.groups().items())]
        return json(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) == 2:
        return _resources(catalog, "", parts[1])
    if parts[0] == "apis" and len(parts) == 2:
        versions = catalog.groups().get(parts[1])
        if versions is None:
            raise PlainNotFound
        return json(200, {"kind": "APIGroup", "apiVersion": "v1"} | _group(parts[1], versions))
    if parts[0] == "apis" and len(parts) == 3:
        return _resources(catalog, parts[1], parts[2])
    return None


def _group(name: str, versions: list[str]) -> Body:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resources(catalog: Catalog, group: str, version: str) -> Reply:
    types = [each for each in catalog if (each.group, each.version) == (group, version)]
    if not types:
        raise PlainNotFound
    resources = [entry for each in types for entry in _entries(each)]
    kind = {"kind": "APIResourceList", "apiVersion": "v1"}
    return json(200, kind | {"groupVersion": types[0].api_version, "resources": resources})


def _entries(type_: ResourceType) -> list[Body]:
    common = {"namespaced": type_.namespaced, "kind": type_.kind}
    main = {"name": type_.plural, "singularName": type_.kind.lower()} | common | {"verbs": _VERBS}
    if type_.short_names:
        main["shortNames"] = list(type_.short_names)
    changed = ["get", "patch", "update"]
    subresources = [(each, changed if each == "resize" else ["create"]) for each in type_.subresources]
    if type_.status:
        subresources.append(("status", changed))
    return [main] + [
        {"name": f"{type_.plural}/{each}", "singularName": ""} | common | {"verbs": verbs}
        for each, verbs in subresources
    ]
