"""BandwidthConfig: what the API server's own policies know of bandwidth. Only the operator writes it, from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from headroom.api.bandwidth import EGRESS_MBPS, INGRESS_MBPS, LOCAL_EGRESS_MBPS, LOCAL_INGRESS_MBPS
from headroom.api.resources import (
    AGE_COLUMN,
    GROUP,
    LONGEST_QUALIFIED_NAME,
    QUALIFIED_NAME,
    ApiType,
    Column,
    Definition,
)
from headroom.api.schema import Rule, extra

CONFIG_NAME: Final = "headroom"
"""The name of the one object."""
MOST_KEYS: Final = 8
NATIVE: Final = "Native"
EXTENDER: Final = "Extender"
WAYS: Final = ("egress", "ingress")
"""Out of a pod, and into it."""
EXTENDED_RATES: Final = {"egress": (EGRESS_MBPS, LOCAL_EGRESS_MBPS), "ingress": (INGRESS_MBPS, LOCAL_INGRESS_MBPS)}
"""The extended resources by which kube-scheduler counts each way in native mode: of the card, and of what is left of the virtual switch."""
EXTENDED: Final = tuple(name for names in EXTENDED_RATES.values() for name in names)
LOCALITY: Final = f"{GROUP}/locality"
"""An annotation of pods: the label that they share with the pods near which they would rather be; for native mode."""

Mode = Literal["Off", "Native", "Extender"]
"""How pods are placed by bandwidth, if at all."""
Unit = Literal["bits", "Mbps"]
"""The unit of a number in an annotation: bits per second, with suffixes, or megabits per second."""
EXAMPLES: Final[Mapping[Unit, str]] = {"bits": "100M", "Mbps": "100"}
AnnotationKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_QUALIFIED_NAME,
        pattern=QUALIFIED_NAME,
        extra=extra(hint="the key of an annotation such as kubernetes.io/egress-bandwidth"),
    ),
]


class RateKey(ApiType, frozen=True, kw_only=True):
    """An annotation of pods that says a rate."""

    annotation: Annotated[AnnotationKey, Meta(description="Its key.")]
    unit: Annotated[
        Unit,
        Meta(description="The unit of its number: bits per second, with suffixes, or megabits per second."),
    ] = "bits"


RateKeys = Annotated[
    tuple[RateKey, ...], Meta(max_length=MOST_KEYS, description="The annotations; the first one that a pod has counts.")
]
RateText = Annotated[
    str, Meta(max_length=64, description="The default for pods without one, in the unit of the first annotation.")
]


class BandwidthConfigSpec(ApiType, frozen=True, kw_only=True):
    """Which annotations say how much bandwidth a pod asks for, and what is made of them."""

    mode: Annotated[Mode, Meta(description="Who keeps pods within the bandwidth of their node.")] = "Off"
    egress: RateKeys = ()
    ingress: RateKeys = ()
    default_egress: RateText = ""
    default_ingress: RateText = ""


class BandwidthConfig:
    """The kind as a whole."""

    kind: ClassVar[Definition] = Definition(
        name="BandwidthConfig",
        plural="bandwidthconfigs",
        short_names=("bwc",),
        namespaced=False,
        spec=BandwidthConfigSpec,
        columns=(Column("Mode", ".spec.mode"), AGE_COLUMN),
        rules=(
            Rule(
                cel=f"self.metadata.name == '{CONFIG_NAME}'",
                message=f"must be called {CONFIG_NAME}: there can be only one",
                holds=lambda it: it["metadata"].get("name") == CONFIG_NAME,
            ),
        ),
        needed=False,
    )
