"""What all kinds share: the resource itself, its conditions, label selectors, and the record that describes a kind."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from headroom.api.schema import Problem, Rule, extra, matches

GROUP: Final = "headroom.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
OPERATORS_NAMESPACE: Final = "headroom-system"
"""Where the operator runs, unless it was set (`namespace` in its settings)."""

SpecT = TypeVar("SpecT")
StatusT = TypeVar("StatusT")


class ApiType(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """A part of a resource. Unknown fields are ignored here, since newer versions may write them; `problems` names them."""

    rules: ClassVar[tuple[Rule, ...]] = ()


class Condition(Struct, frozen=True, kw_only=True, rename="camel"):
    """One standing judgement on a resource, with the moment it last changed."""

    type: Annotated[str, Meta(max_length=316, description="The type of the condition, for example Ready.")]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Whether the condition holds.")]
    reason: Annotated[str, Meta(max_length=1024, description="The reason, as one word for machines.")]
    message: Annotated[str, Meta(max_length=32768, description="The reason, as a sentence for people.")]
    last_transition_time: Annotated[str, Meta(max_length=64, description="When status last changed.")]
    observed_generation: Annotated[int, Meta(description="The generation of the spec that the condition is about.")] = 0


class Status(ApiType, frozen=True, kw_only=True):
    """What Headroom found out about a resource and keeps for itself; every kind adds its own fields."""

    observed_generation: Annotated[int, Meta(description="The generation of the spec that this status is about.")] = 0
    conditions: Annotated[
        tuple[Condition, ...], Meta(description="Conditions, one of each type.", extra=extra(map_key="type"))
    ] = ()
    moving: ClassVar[frozenset[str]] = frozenset()
    """Fields (Python names) that move with the clock alone and need not be written at once."""


class Spec(ApiType, frozen=True, kw_only=True):
    """What the owner of a resource asks for; every kind adds its own fields."""

    paused: Annotated[
        bool, Meta(description="True ends all effects of this resource within seconds; it is still observed.")
    ] = False


class Resource(Struct, Generic[SpecT, StatusT], frozen=True, kw_only=True):
    """A custom resource as typed, immutable data."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    generation: int = 1
    resource_version: str = ""
    created: int = 0
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    annotations: dict[str, str] = {}
    spec: SpecT
    """None where `problems` says why it could not be read."""
    status: StatusT
    problems: tuple[Problem, ...] = ()


class Column(Struct, frozen=True):
    """One column of `kubectl get`."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "date"] = "string"
    wide: bool = False


class Pacing(Struct, frozen=True, kw_only=True):
    """For a kind of which there are very many: it is written after all others, and only so fast."""

    each_seconds: float
    """So often at most the numbers of one resource; its conditions are written at once."""
    per_second: float
    """So many writes in all."""


class Definition(Struct, frozen=True, kw_only=True):
    """What a CustomResourceDefinition is made of."""

    name: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool
    spec: type[ApiType]
    status: type[Status] | None = None
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    """Rules that need the object's own name beside its spec."""
    longest_name: int = 253
    categories: tuple[str, ...] = ()
    """Words that `kubectl get` knows the kind by, together with others."""
    needed: bool = True
    """Whether anything can be decided while it is not seen; any other kind limits only what needs it."""


class Kind(Definition, frozen=True, kw_only=True):
    """All there is to know about one kind that people write; the CRD and the validation are derived from it."""

    spec: type[Spec]
    status: type[Status]
    categories: tuple[str, ...] = ("headroom", "gpu")
    pacing: Pacing | None = None


IMMUTABLE: Final = Rule(
    cel="self == oldSelf",
    message="cannot be changed: delete the object and create another",
    holds=lambda _: True,  # one document alone has no past
)
READY_COLUMN: Final = Column("Ready", ".status.conditions[?(@.type=='Ready')].status")
AGE_COLUMN: Final = Column("Age", ".metadata.creationTimestamp", "date")

# --- label selectors ------------------------------------------------------------------------------------------------------

QUALIFIED_NAME: Final = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LONGEST_QUALIFIED_NAME: Final = 253 + 1 + 63
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""The name of a node, a Secret and most other objects."""

PREFIX_LENGTH: Final = Rule(
    cel="self.indexOf('/') <= 253",
    message="the part before the slash must have at most 253 characters",
    holds=lambda text: text.find("/") <= 253,
)
LabelKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_QUALIFIED_NAME,
        pattern=QUALIFIED_NAME,
        extra=extra(PREFIX_LENGTH, hint="a label key such as team or example.com/team"),
    ),
]
LabelValue = Annotated[
    str,
    Meta(
        max_length=63,
        pattern=LABEL_VALUE,
        extra=extra(hint="a label value: letters, digits, '-', '_' and '.', with a letter or digit at both ends"),
    ),
]


def is_qualified_name(text: str) -> bool:
    """Whether a label, annotation, finalizer or resource may be called so."""
    return len(text) <= LONGEST_QUALIFIED_NAME and text.find("/") <= 253 and matches(QUALIFIED_NAME, text)


def object_name(description: str, hint: str) -> Meta:
    """A field with the name of a Kubernetes object."""
    return Meta(min_length=1, max_length=253, pattern=SUBDOMAIN, description=description, extra=extra(hint=hint))


LABEL_KEYS: Final = Rule(
    cel=(
        f"self.all(key, key.size() <= {LONGEST_QUALIFIED_NAME} && key.indexOf('/') <= 253 && "
        f"key.matches('{QUALIFIED_NAME.replace(chr(92), chr(92) * 2)}'))"
    ),
    message="every key must be a label key such as team or example.com/team",
    holds=lambda labels: all(map(is_qualified_name, labels)),
)

Labels = Annotated[dict[str, LabelValue], Meta(max_length=32, extra=extra(LABEL_KEYS))]


class SelectorRequirement(ApiType, frozen=True, kw_only=True):
    """One condition on a label key."""

    key: Annotated[LabelKey, Meta(description="The label's key.")]
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"],
        Meta(description="In and NotIn compare the label with values; Exists and DoesNotExist ask for the key alone."),
    ]
    values: Annotated[tuple[LabelValue, ...], Meta(max_length=64, description="What In and NotIn compare with.")] = ()
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.operator in ['In', 'NotIn'] == (has(self.values) && self.values.size() > 0)",
            message="In and NotIn need at least one value; Exists and DoesNotExist take none",
            field="values",
            holds=lambda it: (it["operator"] in ("In", "NotIn")) == bool(it.get("values")),
        ),
    )


class LabelSelector(ApiType, frozen=True, kw_only=True):
    """Which objects: all of matchLabels and all of matchExpressions must hold."""

    match_labels: Annotated[Labels, Meta(description="Labels that must be present, each with this value.")] = {}
    match_expressions: Annotated[
        tuple[SelectorRequirement, ...], Meta(max_length=16, description="Conditions on labels that must all hold.")
    ] = ()
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=(
                "(has(self.matchLabels) && self.matchLabels.size() > 0) || "
                "(has(self.matchExpressions) && self.matchExpressions.size() > 0)"
            ),
            message="must not be empty, or it would match everything: give matchLabels or matchExpressions",
            holds=lambda it: bool(it.get("matchLabels")) or bool(it.get("matchExpressions")),
        ),
    )
