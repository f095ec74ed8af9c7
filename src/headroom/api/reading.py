"""Reads as much of a document as this version understands: what it cannot read is left out, everything else stays."""

from __future__ import annotations

import types
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Struct, structs

from headroom.api.schema import Json

_NOTHING: Final = object()
_UNREADABLE: Final = (msgspec.ValidationError, UnicodeError)


def readable(document: Json, type_: Any) -> Any:
    """The document as that type, without the parts that cannot be read; a field of which nothing can has its default.

    Raises msgspec.ValidationError where nothing is left: it is of another form, or a field that it must have is unreadable.
    """
    try:
        return msgspec.convert(document, type_, strict=False)
    except _UNREADABLE as error:
        found = _in_part(document, _plain(type_))
        if found is _NOTHING:
            raise msgspec.ValidationError(str(error)) from error
        return found


def _in_part(document: Any, type_: Any) -> Any:
    origin, args = get_origin(type_), get_args(type_)
    if origin is tuple and isinstance(document, list | tuple):
        return tuple(each for item in document if (each := _or_nothing(item, args[0])) is not _NOTHING)
    if origin is dict and isinstance(document, dict):
        read = {key: _or_nothing(value, args[1]) for key, value in document.items() if isinstance(key, str)}
        return {key: value for key, value in read.items() if value is not _NOTHING}
    if isinstance(type_, type) and issubclass(type_, Struct) and isinstance(document, dict):
        return _struct(document, type_)
    return _NOTHING


def _struct(document: dict[str, Any], type_: type[Struct]) -> Any:
    known = {}
    for field in structs.fields(type_):
        value = _or_nothing(document[field.encode_name], field.type) if field.encode_name in document else _NOTHING
        if value is not _NOTHING:
            known[field.name] = value
        elif field.required:
            return _NOTHING
    return type_(**known)


def _or_nothing(document: Any, type_: Any) -> Any:
    try:
        return readable(document, type_)
    except _UNREADABLE:
        return _NOTHING


def _plain(type_: Any) -> Any:
    """The type without its limits, and of `X | None` the X."""
    if get_origin(type_) is Annotated:
        return _plain(get_args(type_)[0])
    if get_origin(type_) in (Union, types.UnionType):
        some = [each for each in get_args(type_) if each is not type(None)]
        return _plain(some[0]) if len(some) == 1 else type_
    return type_
