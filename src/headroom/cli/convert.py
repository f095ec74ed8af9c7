"""`headroom convert`: manifests of the five systems that Headroom grew from, rewritten as its own.

The kinds and fields are the same; what changes is the group, plain-text keys (they move into a Secret), annotations, and the
machines that were environment variables or chart values (they become a PowerPool). The rest passes as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headroom.cli import addresses, convert_bandwidth, convert_spot, machines, manifests, output
from headroom.cli.options import Files, ManifestForm, Manifests, Recursive
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.api.kinds import AnyResource

Json = Any

OLD_GROUPS: Final = {
    "budget.zxuhan.dev": "GPUWorkloadBudget",
    "devops.jokerbai.com": "Spotpool",
    "devops.jokerbai.com.jokerbai.com": "Spotpool",  # what the article's kubebuilder command really makes
    "networking.vaclab.org": "Bandwidth",
    "gpu.devplatforms.io": "LeftoverNodePool",
}
POOL: Final = "gpu-machines"
_OLD_ANNOTATIONS: Final = {
    "budget.zxuhan.dev/paused-at": "headroom.dev/paused-at",
    "budget.zxuhan.dev/paused-by": "headroom.dev/paused-by",
}
# kubectl's copy of the last manifest would carry the plain-text keys along.
_DROPPED_ANNOTATIONS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)
_SET_BY_SERVER: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_WANTED: Final = "give manifests as YAML or JSON, chart values, an .env file, or a `docker run` line"


def convert(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Manifests, values or .env files, as with --file.", show_default=False),
    ] = None,
    files: Files = None,
    recursive: Recursive = False,
    form: ManifestForm = Manifests.yaml,
) -> None:
    """Rewrite manifests of five older systems as Headroom's.

    The systems are gwb-operator, Spotpool, k8s-gpu-autoprovision, vaclab-bandwidth-operator and Leftover. Parts that cannot be
    converted are listed on stderr. Keys in a Spotpool move into a Secret, and its kongGatewayIP becomes a gateway. Bandwidth values
    of vaclab's chart become settings of the operator, on stderr. The machines of k8s-gpu-autoprovision are read from .env files,
    docker lines, compose files, chart values, ConfigMaps and Deployments and become one PowerPool. Exit code 1 if the result still
    needs an editor, or if a machine is missing in it.

    Example: headroom convert old/*.yaml nodes.env > new.yaml && headroom check new.yaml
    """
    found = Conversion()
    for source, text in manifests.read(_given([*(paths or ()), *(files or ())], recursive)):
        found.take(source, text)
    documents = found.documents()
    if documents:
        output.as_manifests(documents, form)
    wrong = list(_problems(documents))
    for complaint in [*found.warnings, *wrong, *found.hints()]:
        output.say(complaint)
    _say_settings(found.settings)
    is_empty = not documents and not found.settings
    if is_empty:
        output.say("nothing to convert was found")
    if wrong or found.lost or is_empty:
        sys.exit(output.PROBLEMS)


def _given(named: list[Path], recursive: bool) -> list[Path]:
    if not named:
        raise Misconfigured("reading manifests: none are given; write `headroom convert FILE`, - being standard input")
    return manifests.files_of(named, recursive=recursive, endings=(*manifests.ENDINGS, ".env"))


def _say_settings(settings: dict[str, str]) -> None:
    """The settings as an environment file has them."""
    if settings:
        output.say(convert_bandwidth.HEADING)
    for name, value in settings.items():
        output.say(f"{name}={value}")


class Conversion:
    """What has been converted so far."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.lost = False
        """A machine, or a setting, is not in the result."""
        self.settings: dict[str, str] = {}
        """Of the operator, by the name of their variable."""
        self._documents: list[Json] = []
        self._machines: dict[str, dict[str, Json]] = {}

    def take(self, source: str, text: bytes) -> None:
        """Convert all that stands in one file."""
        from headroom.adapters import texts

        words = text.decode("utf-8", "replace")
        if machines.is_environment(words):
            self._take_machines(source, machines.in_environment(machines.variables(words)))
            return
        repeated: list[texts.Repeated] = []
        try:
            objects = list(texts.objects(source, text, repeated))
        except Misconfigured as error:
            # Other commands take manifests alone, and say so.
            raise Misconfigured(str(error).replace(texts.WANTED, _WANTED)) from None
        for found in objects:
            self._take_document(source, found.value)
        for each in repeated:
            self._warn(
                source, f"line {each.line}: {each.key} is on line {each.first_line} already; only the last one counts"
            )

    def documents(self) -> list[Json]:
        """The result, the PowerPool last."""
        if not self._machines:
            return self._documents
        return [*self._documents, _ours("PowerPool", {"name": POOL}, {"machines": list(self._machines.values())})]

    def hints(self) -> Iterator[str]:
        """What else has to be done for the result to work."""
        listed = addresses.entries(_pools(self.documents()))
        if listed:
            yield addresses.hint(listed, most=len(listed))
        yield from convert_spot.hints(self.documents())

    def _take_document(self, source: str, document: dict[str, Json]) -> None:
        is_of_chart = "kind" not in document and convert_bandwidth.is_of_chart(document)
        if is_of_chart:
            self._take_settings(source, document)
        candidates = list(_candidates(document))
        if candidates:
            self._take_machines(source, candidates)
            if "kind" in document:
                self._warn(source, f"{_named(document)} belongs to the old controller: only its machines are converted")
            return
        if "kind" not in document:
            if not is_of_chart:
                self._warn(source, _no_machines(document))
            return
        self._documents += self._converted(source, document)

    def _take_machines(self, source: str, candidates: list[machines.FoundMachine]) -> None:
        if not candidates:
            self._warn(source, "no variable ends in _GPU_COUNT, so no machine was found")
        for candidate in candidates:
            machine, why = machines.usable(candidate)
            if machine is None:
                self._warn(source, why)
                self.lost = True
            elif self._machines.setdefault(machine["name"], machine) != machine:
                self._warn(source, f"{candidate.label}: duplicate machine {machine['name']}, left out")
                self.lost = True

    def _take_settings(self, source: str, values: dict[str, Json]) -> None:
        refused = list(convert_bandwidth.refused(values))
        for said in (*refused, *convert_bandwidth.remarks(values)):
            self._warn(source, said)
        self.lost = self.lost or bool(refused)
        self.settings |= convert_bandwidth.settings(values)

    def _converted(self, source: str, document: dict[str, Json]) -> list[Json]:
        from headroom.api.resources import GROUP

        group, kind = str(document.get("apiVersion", "")).partition("/")[0], document["kind"]
        document = _with_new_annotations(document)
        if group == GROUP:
            return convert_spot.without_plain_keys(document) if kind == "Spotpool" else [document]
        if OLD_GROUPS.get(group) != kind:
            self._warn(source, f"{_named(document)} is not of a converted kind; it is copied unchanged")
            return [document]
        metadata, spec = _kept_metadata(kind, _mapping(document, "metadata")), dict(_mapping(document, "spec"))
        for change in _CHANGES[kind]:
            self.warnings += [f"{source}: {_named(document)}: {said}" for said in change(metadata, spec)]
        converted = _ours(kind, metadata, spec)
        return convert_spot.without_plain_keys(converted) if kind == "Spotpool" else [converted]

    def _warn(self, source: str, text: str) -> None:
        self.warnings.append(f"{source}: {text}")


def _ours(kind: str, metadata: Json, spec: Json) -> dict[str, Json]:
    from headroom.api.resources import API_VERSION

    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _mapping(document: Json, key: str) -> dict[str, Json]:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def _named(document: dict[str, Json]) -> str:
    metadata = _mapping(document, "metadata")
    return "/".join(
        str(part) for part in (document.get("kind"), metadata.get("namespace"), metadata.get("name")) if part
    )


def _problems(documents: list[Json]) -> Iterator[str]:
    from headroom.api.kinds import problems
    from headroom.api.resources import GROUP

    for document in documents:
        if str(document.get("apiVersion")).partition("/")[0] == GROUP:
            for problem in problems(document):
                yield f"{_named(document)}: {problem.field} {problem.message}"
    for pool in _pools(documents):
        for problem in addresses.refused(pool):
            yield f"{pool.kind}/{pool.name}: {problem.field} {problem.message}"


def _pools(documents: list[Json]) -> list[AnyResource]:
    """The pools of a result, read as they will be."""
    from headroom.adapters.kube import parse
    from headroom.api.resources import GROUP

    pools = (each for each in documents if each.get("kind") in ("PowerPool", "Spotpool"))
    return [parse.resource(each) for each in pools if str(each.get("apiVersion")).partition("/")[0] == GROUP]


# --- what all kinds have ------------------------------------------------------------------------------------------------


def _kept_metadata(kind: str, metadata: dict[str, Json]) -> dict[str, Json]:
    """What a person wrote: what a server added belongs to the old object."""
    from headroom.api.kinds import KINDS

    kept = {key: value for key, value in metadata.items() if key not in _SET_BY_SERVER}
    if not KINDS[kind].namespaced:
        kept.pop("namespace", None)
    finalizers = kept.pop("finalizers", None)
    if isinstance(finalizers, list):
        # Nobody would ever remove the finalizer of a controller that is gone.
        foreign = [each for each in finalizers if str(each).partition("/")[0] not in OLD_GROUPS]
        kept |= {"finalizers": foreign} if foreign else {}
    return kept


def _with_new_annotations(document: dict[str, Json]) -> dict[str, Json]:
    metadata = _mapping(document, "metadata")
    annotations = _mapping(metadata, "annotations")
    if not any(key in _OLD_ANNOTATIONS for key in annotations) and not _is_old(document):
        return document
    renamed = {
        _OLD_ANNOTATIONS.get(key, key): value for key, value in annotations.items() if key not in _DROPPED_ANNOTATIONS
    }
    kept = {key: value for key, value in metadata.items() if key != "annotations"}
    return document | {"metadata": kept | ({"annotations": renamed} if renamed else {})}


def _is_old(document: dict[str, Json]) -> bool:
    return str(document.get("apiVersion", "")).partition("/")[0] in OLD_GROUPS


# --- kind by kind ---------------------------------------------------------------------------------------------------------


def _rename_reservations(_: Json, spec: dict[str, Json]) -> Iterator[str]:
    reservations = spec.pop("reservations", None)
    if isinstance(reservations, list):
        requests = spec.get("requests")
        known = list(requests) if isinstance(requests, list) else []
        uids = {each.get("podUid") for each in known if isinstance(each, dict)}
        spec["requests"] = known + [
            each for each in reservations if not isinstance(each, dict) or each.get("podUid") not in uids
        ]
        if reservations:
            yield "spec.reservations is now spec.requests"


def _same_node_name(metadata: dict[str, Json], spec: dict[str, Json]) -> Iterator[str]:
    node, name = spec.get("node"), metadata.get("name")
    if node != name and str(node).lower() == str(name).lower():
        spec["node"] = name
        yield "spec.node is written as the object's name now"


def _drop_zeros(_: Json, spec: dict[str, Json]) -> Iterator[str]:
    """There, as in Go, zero and nothing meant the same: take the default."""
    yield from ()
    for key in [key for key, value in spec.items() if value in ("", 0, None) and value is not False]:
        if key != "minSpotScore":
            del spec[key]


_CHANGES: Final = {
    "GPUWorkloadBudget": (),
    "Spotpool": (convert_spot.changed,),
    "Bandwidth": (_rename_reservations, _same_node_name),
    "LeftoverNodePool": (_drop_zeros,),
}


# --- machines ---------------------------------------------------------------------------------------------------------------


def _no_machines(document: dict[str, Json]) -> str:
    """Why chart values without machines become nothing."""
    if _mapping(document, "aws"):
        return "these are settings of the old controller without any resource; nothing is converted"
    return "holds an object without a kind and without machines; it is left out"


def _candidates(document: dict[str, Json]) -> Iterator[machines.FoundMachine]:
    """The machines that chart values, a mapping of variables, or the environment of an object's containers describe."""
    if "kind" not in document:
        groups = document.get("nodeGroups")
        if isinstance(groups, list):
            yield from machines.in_node_groups(groups)
        yield from machines.in_environment(document)
        for service in _mapping(document, "services").values():  # of a compose file
            yield from machines.in_environment(_environment(service))
        return
    if document["kind"] == "ConfigMap":
        yield from machines.in_environment(_mapping(document, "data"))
    template = _mapping(_mapping(document, "spec"), "template") or document
    containers = _mapping(template, "spec").get("containers")
    for container in containers if isinstance(containers, list) else ():
        listed = container.get("env") if isinstance(container, dict) else None
        if isinstance(listed, list):
            pairs = [each for each in listed if isinstance(each, dict)]
            yield from machines.in_environment({str(each.get("name")): each.get("value") for each in pairs})


def _environment(service: Json) -> dict[str, Json]:
    """The variables of a service: a mapping, or a list of NAME=value."""
    listed = service.get("environment") if isinstance(service, dict) else None
    return machines.pairs(listed) if isinstance(listed, list) else _mapping(service, "environment")
