"""What is written of a status: nothing that is not known, but always what the API server asks for."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from msgspec import NODEFAULT, Struct, structs

from headroom.api.kinds import KINDS, status_of
from headroom.api.spot_pools_status import SpotpoolStatus
from headroom.model.decisions import status_wire


def emptiest(type_: Any) -> Any:
    """A value of a type that says as little as may be, but with one of each list."""
    origin, args = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return emptiest(args[0])
    if origin in (Union, types.UnionType):
        return emptiest(args[0])
    if origin is Literal:
        return args[0]
    if origin is tuple:
        return (emptiest(args[0]),)
    if origin is dict:
        return {"key": emptiest(args[1])}
    if isinstance(type_, type) and issubclass(type_, Struct):
        # Where nothing is said of a number's limits it is 1, which all of them allow.
        given = {each.name: emptiest(each.type) for each in structs.fields(type_) if _is_told(each)}
        return type_(**given)
    return {str: "", int: 1, bool: False}[type_]


def _is_told(field: structs.FieldInfo) -> bool:
    """Whether a field must be there, or may hold something that has such fields."""
    return field.required or field.default is NODEFAULT or field.default in ((), None) or field.default == {}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_must_be_there_is_written_though_it_is_empty(kind: str) -> None:
    status = emptiest(KINDS[kind].status)
    wire = status_wire(status)
    assert msgspec.convert(wire, KINDS[kind].status) == status_of(kind, wire), "all of it can be read"


def test_what_is_not_known_is_left_out() -> None:
    assert status_wire(SpotpoolStatus()) == {"observedGeneration": 0}
