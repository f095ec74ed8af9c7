"""A Secret says which pool may send it where, and nothing but exactly that is believed."""

from __future__ import annotations

import pytest

from headroom.adapters.egress import target_of
from headroom.adapters.usable_by import Secret, Use, check_usable, is_usable
from headroom.model.errors import Refused

RACK, API = "PowerPool/rack", "https://power-api.example.com/w1/up"


@pytest.mark.parametrize(
    ("written", "user", "url"),
    [
        ("PowerPool/rack@power-api.example.com", RACK, API),
        ("PowerPool/rack@https://power-api.example.com", RACK, API),
        ("PowerPool/rack@https://power-api.example.com:443/", RACK, API),
        ("PowerPool/rack@POWER-API.example.com", RACK, API),
        ("PowerPool/a@b.example,PowerPool/rack@power-api.example.com", RACK, API),
        ("PowerPool/a@b.example\n PowerPool/rack@power-api.example.com ,", RACK, API),
        ("PowerPool/rack@http://10.0.7.1:8000", RACK, "http://10.0.7.1:8000/?x=1"),
        ("PowerPool/rack@[fd00:0::7]:8443", RACK, "https://[fd00::7]:8443"),
        ("SpotPool/team-a/burst@api.example.com", "SpotPool/team-a/burst", "https://api.example.com/v1"),
    ],
)
def test_who_is_named_with_a_host_may_send_it_there(written: str, user: str, url: str) -> None:
    assert is_usable(written, user, target_of(url))


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("", API),
        ("*", API),
        ("PowerPool/rack", API),
        ("PowerPool/rack@", API),
        ("PowerPool/rack@*", API),
        ("PowerPool/rack@*.example.com", API),
        ("PowerPool/*@power-api.example.com", API),
        ("power-api.example.com", API),
        ("@power-api.example.com", API),
        # another pool, or another kind
        ("PowerPool/rack2@power-api.example.com", API),
        ("PowerPool/rac@power-api.example.com", API),
        ("PowerPool/team-a/rack@power-api.example.com", API),
        ("SpotPool/rack@power-api.example.com", API),
        ("powerpool/rack@power-api.example.com", API),
        # another host, even if one name begins or ends like the other
        ("PowerPool/rack@example.com", API),
        ("PowerPool/rack@power-api.example.com", "https://power-api.example.com.evil.example/"),
        ("PowerPool/rack@power-api.example.com", "https://evil.power-api.example.com/"),
        ("PowerPool/rack@power-api.example.com@evil.example", "https://evil.example/"),
        ("PowerPool/rack@power-api.example.com", "https://evil.example/?@power-api.example.com"),
        # another port, and without TLS
        ("PowerPool/rack@power-api.example.com", "https://power-api.example.com:8443/"),
        ("PowerPool/rack@power-api.example.com:8443", API),
        ("PowerPool/rack@power-api.example.com", "http://power-api.example.com/"),
        ("PowerPool/rack@power-api.example.com", "http://power-api.example.com:443/"),
        # a path would look like a limit, and a number written in another way like a name
        ("PowerPool/rack@power-api.example.com/w1", API),
        ("PowerPool/rack@power-api.example.com?x", API),
        ("PowerPool/rack@http://127.1", "http://127.0.0.1/"),
        ("PowerPool/rack@http://10.0.7.0/24", "http://10.0.7.1/"),
        ("PowerPool/rack@ power-api.example.com", API),
    ],
)
def test_nothing_else_is_believed(written: str, url: str) -> None:
    assert not is_usable(written, RACK, target_of(url))


def test_the_refusal_says_what_to_write_where() -> None:
    use = Use(kind="PowerPool", name="rack", url=API, field="spec.webhook.tokenSecretRef")
    secret = Secret(token="hush")
    secret.place = "headroom-system/power-api"
    with pytest.raises(Refused) as caught:
        check_usable(secret, "power-api", use)
    assert str(caught.value) == (
        "spec.webhook.tokenSecretRef: Secret power-api does not allow PowerPool/rack@https://power-api.example.com; "
        "to allow it, its owner annotates it: kubectl annotate secret -n headroom-system power-api "
        "headroom.dev/usable-by=PowerPool/rack@https://power-api.example.com"
    )
    secret.usable_by = "PowerPool/rack@https://power-api.example.com"
    check_usable(secret, "power-api", use)


def test_whoever_says_nothing_about_its_users_lends_it_to_nobody() -> None:
    use = Use(kind="SpotPool", namespace="team-a", name="burst", url=API, field="spec.credentialsSecretRef")
    with pytest.raises(Refused, match=r"SpotPool/team-a/burst@https://power-api\.example\.com"):
        check_usable({"token": "hush"}, "keys", use)  # type: ignore[arg-type]  # as a stand-in might
