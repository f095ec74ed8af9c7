"""Who may do what: the users of a simulated cluster, their tokens and rights, and the reviews that ask about both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from headroom.sim.answers import Body, ErrorAnswer, about, dotted
from headroom.sim.calls import ApiCall
from headroom.sim.catalog import PathTarget

ANY: Final = "*"


class Right(Struct, frozen=True, kw_only=True):
    """One rule of a role; `*` stands for all."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    """Plurals, with a subresource as `pods/eviction`."""
    groups: tuple[str, ...] = (ANY,)
    namespaces: tuple[str, ...] = (ANY,)
    names: tuple[str, ...] = ()


class User(Struct, kw_only=True):
    """Somebody with a token. `rights` None means an administrator; both can be changed while a scenario runs."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = ""
    rights: tuple[Right, ...] | None = None
    expires_ms: int | None = None
    """When the token stops being accepted."""


class Actor(Struct, kw_only=True):
    """One client of the server, for its faults, its trace and its rights."""

    name: str
    user: User
    latency_ms: int = 0
    sets_stage: bool = False
    """It puts a scenario's objects in place, which keep the identity and the age that they are given."""
    alive: bool = True
    """False once it crashed: nothing it still tries has any effect."""


class Attributes(Struct, frozen=True):
    """What somebody wants to do."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


def attributes(verb: str, target: PathTarget) -> Attributes:
    """What a request wants to do."""
    resource = f"{target.type.plural}/{target.subresource}" if target.subresource else target.type.plural
    return Attributes(verb, target.type.group, resource, target.namespace, target.name)


def allowed(user: User | None, wanted: Attributes) -> bool:
    """Whether the user has the right."""
    if user is None:
        return False
    if user.rights is None or "system:masters" in user.groups:
        return True
    if wanted.resource == "selfsubjectaccessreviews":
        return True  # everybody may ask about themselves
    return any(_grants(each, wanted) for each in user.rights)


def _grants(right: Right, wanted: Attributes) -> bool:
    def has(choices: tuple[str, ...], value: str) -> bool:
        return ANY in choices or value in choices

    return (
        has(right.verbs, wanted.verb)
        and has(right.groups, wanted.group)
        and has(right.resources, wanted.resource)
        and has(right.namespaces, wanted.namespace)
        and (not right.names or wanted.name in right.names)
    )


def forbidden(user: str, wanted: Attributes) -> ErrorAnswer:
    """The server's words for a missing right."""
    plural = wanted.resource.split("/", maxsplit=1)[0]
    what = dotted(plural, wanted.group) + (f' "{wanted.name}"' if wanted.name else "")
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    message = f'{what} is forbidden: User "{user}" cannot {wanted.verb} resource "{wanted.resource}" in API group "{wanted.group}"'
    return ErrorAnswer(403, "Forbidden", f"{message} {where}", about(wanted.group, plural, wanted.name))


def unauthorized() -> ErrorAnswer:
    """The server's words for a token that it does not know, or no longer."""
    return ErrorAnswer(401, "Unauthorized", "Unauthorized")


class Users:
    """Everybody that the cluster knows."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}
        self.add(User(name="admin", groups=("system:masters",)))

    def add(self, user: User) -> User:
        """Know somebody; without a token of their own they get `token-of-NAME`."""
        user.token = user.token or f"token-of-{user.name}"
        self._users[user.name] = user
        return user

    def __getitem__(self, name: str) -> User:
        return self._users[name]

    def get(self, name: str) -> User | None:
        """The user of that name."""
        return self._users.get(name)

    def holder(self, token: str, now: int) -> User | None:
        """Whose token it is, if it is still good."""
        found = next((each for each in self._users.values() if each.token == token), None)
        return None if found is None or is_expired(found, now) else found


def is_expired(user: User, now: int) -> bool:
    """Whether the user's token is no longer accepted."""
    return user.expires_ms is not None and now >= user.expires_ms


def review(call: ApiCall, users: Users, document: Body, now: int) -> Body:
    """TokenReview, SubjectAccessReview and SelfSubjectAccessReview."""
    spec = document.get("spec") or {}
    if call.target.type.plural == "tokenreviews":
        return document | {"status": _token_status(users.holder(str(spec.get("token")), now))}
    name = call.user if call.target.type.plural.startswith("self") else str(spec.get("user"))
    groups = tuple(spec.get("groups") or ())
    user = users.get(name)
    if "system:masters" in groups:
        user = User(name=name, groups=groups)
    return document | {"status": {"allowed": allowed(user, _asked(spec.get("resourceAttributes") or {}))}}


def _token_status(user: User | None) -> Body:
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}
    groups = [*user.groups, "system:authenticated"]
    who = {"username": user.name, "uid": user.name, "groups": groups}
    return {"authenticated": True, "user": who, "audiences": ["https://kubernetes.default.svc"]}


def _asked(spec: Mapping[str, Any]) -> Attributes:
    resource = str(spec.get("resource", ""))
    if spec.get("subresource"):
        resource += f"/{spec['subresource']}"
    return Attributes(
        str(spec.get("verb", "")),
        str(spec.get("group", "")),
        resource,
        str(spec.get("namespace", "")),
        str(spec.get("name", "")),
    )
