"""Machines that are switched by calls: what is sent, which answers mean yes, and that nothing secret is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from headroom.adapters.power.orders import order_of
from headroom.adapters.power.webhook import filled
from headroom.model.errors import HeadroomError, Refused, Unavailable
from tests.adapters.listening import Listening, listening
from tests.adapters.power.stage import CANARY, SLEPT, WOKEN, Vault, View, a_pool, by_calls, power


@pytest.fixture
async def server() -> AsyncIterator[Listening]:
    async with listening() as found:
        yield found


def answer(status: int, more: str = "", body: str = "") -> bytes:
    return f"HTTP/1.1 {status} Word\r\nContent-Length: {len(body)}\r\n{more}\r\n{body}".encode()


async def test_a_call_has_the_body_the_headers_and_a_key_of_its_own(server: Listening) -> None:
    hook = {
        "headers": [{"name": "X-Rack", "value": "seven"}, {"name": "X-Key", "secretKeyRef": {"name": "s", "key": "k"}}],
        "tokenSecretRef": {"name": "s"},
        "body": '{"node": "${machine}", "pool": "${pool}", "do": "${action}", "left": "${other}"}',
    }
    pool = a_pool(by_calls(server.port), webhook=hook)
    vault = Vault(s={"token": f"{CANARY}\n", "k": "key-1"})
    switches = power(server.port, vault)
    await switches.wake(pool, "w1")
    assert vault.asked == ["s"], "once for a call, however often it is named"
    await switches.sleep(pool, "w1")
    up, down = (each.decode().split("\r\n") for each in server.requests)
    assert (up[0], down[0]) == ("POST /w1/up HTTP/1.1", "POST /w1/down HTTP/1.1")
    assert json.loads(up[-1]) == {"node": "w1", "pool": "rack", "do": "wake", "left": "${other}"}
    assert json.loads(down[-1])["do"] == "sleep"
    sent, later = (
        {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in each[1:-2]} for each in (up, down)
    )
    assert sent["idempotency-key"] == f"{pool.uid}/w1/wake/{WOKEN}"
    assert later["idempotency-key"] == f"{pool.uid}/w1/sleep/{SLEPT}"
    assert (sent["x-rack"], sent["x-key"], sent["authorization"]) == ("seven", "key-1", f"Bearer {CANARY}")
    assert sent["content-type"] == "application/json"
    assert [(each.machine, each.command, each.outcome, each.message) for each in switches.calls.values()] == [
        ("w1", "Sleep", "Accepted", "")
    ]


async def test_the_seeds_call_is_a_post_with_an_empty_object(server: Listening) -> None:
    await power(server.port).wake(a_pool(by_calls(server.port)), "w1")
    assert server.requests[0].endswith(b"\r\n\r\n{}")


async def test_a_content_type_of_ones_own_counts(server: Listening) -> None:
    hook = {"headers": [{"name": "Content-Type", "value": "text/plain"}], "body": "on"}
    await power(server.port).wake(a_pool(by_calls(server.port), webhook=hook), "w1")
    assert server.requests[0].lower().count(b"content-type: text/plain") == 1
    assert b"application/json" not in server.requests[0]


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_any_2xx_means_yes_whatever_the_body_says(server: Listening, status: int) -> None:
    server.answer = answer(status, body="" if status == 204 else "<html>error: no</html>")
    switches = power(server.port)
    await switches.wake(a_pool(by_calls(server.port)), "w1")
    assert switches.calls["w1"].outcome == "Accepted"


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (301, "127.0.0.1 answered 301 Moved Permanently; redirects are not followed"),
        (302, "127.0.0.1 answered 302 Found; redirects are not followed"),
        (303, "127.0.0.1 answered 303 See Other; redirects are not followed"),
        (307, "127.0.0.1 answered 307 Temporary Redirect; redirects are not followed"),
        (308, "127.0.0.1 answered 308 Permanent Redirect; redirects are not followed"),
        (400, "127.0.0.1 answered 400 Bad Request"),
        (401, "127.0.0.1 answered 401 Unauthorized"),
        (404, "127.0.0.1 answered 404 Not Found"),
        (409, "127.0.0.1 answered 409 Conflict"),
        (429, "127.0.0.1 answered 429 Too Many Requests"),
        (500, "127.0.0.1 answered 500 Internal Server Error"),
        (503, "127.0.0.1 answered 503 Service Unavailable"),
        (599, "127.0.0.1 answered 599"),
    ],
)
async def test_any_other_answer_means_no_and_its_body_is_not_repeated(
    server: Listening, status: int, says: str
) -> None:
    location = f"Location: http://127.0.0.1:{server.port}/elsewhere\r\n"
    server.answer = answer(status, location, f"the secret is {CANARY}")
    switches = power(server.port)
    with pytest.raises(Refused) as caught:
        await switches.wake(a_pool(by_calls(server.port)), "w1")
    assert str(caught.value) == f"waking machine w1: {says}"
    call = switches.calls["w1"]
    assert (call.outcome, call.message) == ("Failed", says)
    assert len(server.requests) == 1


async def test_only_the_expected_answers_mean_yes_where_some_are_named(server: Listening) -> None:
    pool = a_pool(by_calls(server.port), webhook={"expectedStatus": [202, 204]})
    switches = power(server.port)
    with pytest.raises(Refused, match=r"putting machine w1 to sleep: 127\.0\.0\.1 answered 200 OK"):
        await switches.sleep(pool, "w1")
    server.answer = answer(202)
    await switches.sleep(pool, "w1")
    assert switches.calls["w1"].outcome == "Accepted"


async def test_silence_after_the_call_is_no_failure_and_no_success(server: Listening) -> None:
    switches, pool = power(server.port), a_pool(by_calls(server.port), webhook={"timeoutSeconds": 1})
    server.hang_up = True
    with pytest.raises(Unavailable, match=r"waking machine w1: the connection to 127\.0\.0\.1 broke"):
        await switches.wake(pool, "w1")
    assert switches.calls["w1"].outcome == "Unknown"
    server.hang_up, server.pause = False, 30.0
    with pytest.raises(Unavailable, match=r"did not answer within 1s"):
        await switches.sleep(pool, "w1")
    assert (switches.calls["w1"].command, switches.calls["w1"].outcome) == ("Sleep", "Unknown")
    assert len(server.requests) == 2, "one call each: silence is no reason to ask again"


async def test_a_call_that_reached_nobody_has_failed(server: Listening) -> None:
    switches = power(1)
    with pytest.raises(Unavailable, match=r"waking machine w1: cannot connect to 127\.0\.0\.1"):
        await switches.wake(a_pool(by_calls(1)), "w1")
    assert switches.calls["w1"].outcome == "Failed"
    with pytest.raises(Refused, match=r"calls to http://127\.0\.0\.1:\d+ are not allowed"):
        await switches.wake(a_pool(by_calls(server.port)), "w1")
    assert (switches.calls["w1"].outcome, server.peers) == ("Failed", [])


@pytest.mark.parametrize(
    ("vault", "why"),
    [
        ({}, "reading Secret headroom-system/s: there is none"),
        ({"s": {"other": CANARY}}, "Secret s has no key token"),
        (
            {"s": {"token": f"{CANARY}\r\nX-Injected: yes"}},
            "key token of Secret s has characters that no header may have",
        ),
        ({"s": {"token": f"{CANARY}é"}}, "key token of Secret s has characters that no header may have"),
    ],
)
async def test_without_its_secret_nothing_is_sent(
    server: Listening, vault: dict[str, dict[str, str]], why: str
) -> None:
    pool = a_pool(by_calls(server.port), webhook={"tokenSecretRef": {"name": "s"}})
    switches = power(server.port, Vault(**vault))
    with pytest.raises(Refused) as caught:
        await switches.wake(pool, "w1")
    assert str(caught.value) == f"waking machine w1: {why}"
    assert (switches.calls["w1"].outcome, server.peers) == ("Failed", [])


async def test_a_secret_is_in_no_message_whatever_goes_wrong(server: Listening) -> None:
    pool = a_pool(by_calls(server.port), webhook={"tokenSecretRef": {"name": "s"}, "timeoutSeconds": 1})
    vault = Vault(s={"token": CANARY})
    said = []
    for change in ({"answer": answer(500, body=CANARY)}, {"hang_up": True}, {"hang_up": False, "pause": 30.0}):
        for name, value in change.items():
            setattr(server, name, value)
        switches = power(server.port, vault)
        with pytest.raises(HeadroomError) as caught:
            await switches.wake(pool, "w1")
        said += [str(caught.value), repr(caught.value), repr(caught.value.__cause__), repr(dict(switches.calls))]
    assert all(CANARY.encode() in each for each in server.requests), "it was sent"
    assert not any(CANARY in each for each in said)
    assert vault.asked == ["s"] * 3, "it is read for each call, and kept by nobody"


async def test_every_outcome_is_news(server: Listening) -> None:
    switches, view = power(server.port), View()
    switches.connect(view, lambda: True)
    await switches.wake(a_pool(by_calls(server.port)), "w1")
    server.answer = answer(500)
    with pytest.raises(Refused):
        await switches.sleep(a_pool(by_calls(server.port)), "w1")
    switches.refused("w1", "Sleep", "a pod is there")
    assert view.news == ["machines"] * 3
    assert switches.calls["w1"].message == "a pod is there"
    assert switches.calls["w1"].outcome == "Failed"


async def test_a_machine_that_the_pool_does_not_have_is_not_switched(server: Listening) -> None:
    switches, pool = power(server.port), a_pool(by_calls(server.port))
    with pytest.raises(Refused, match="waking machine w9: PowerPool rack has no such machine"):
        await switches.wake(pool, "w9")
    with pytest.raises(Refused, match="PowerPool rack cannot be read"):
        await switches.wake(structs.replace(pool, spec=None), "w1")
    assert server.peers == []


def test_what_is_put_into_a_body_stays_inside_its_quotes_and_is_not_looked_at_again() -> None:
    words = {"machine": 'a"b\\c\n${pool}', "pool": "p", "action": "wake"}
    assert json.loads(filled('{"m": "${machine}", "p": "${pool}"}', words)) == {"m": 'a"b\\c\n${pool}', "p": "p"}
    assert filled("$machine ${ machine } $${action}", words) == "$machine ${ machine } $wake"


async def test_a_retry_of_the_same_intent_has_the_same_key(server: Listening) -> None:
    pool = a_pool(by_calls(server.port))
    for _ in range(2):
        await power(server.port).wake(pool, "w1")
    keys = [
        line for each in server.requests for line in each.split(b"\r\n") if line.lower().startswith(b"idempotency-key")
    ]
    assert (len(keys), len(set(keys))) == (2, 1)


@pytest.mark.parametrize(
    "usable_by",
    [
        "PowerPool/other@http://127.0.0.1:{port}",
        "SpotPool/rack@http://127.0.0.1:{port}",
        "PowerPool/rack@http://127.0.0.1",
        "PowerPool/rack@https://127.0.0.1:{port}",
        "PowerPool/rack@http://127.0.0.2:{port}",
        "http://127.0.0.1:{port}",
        "*",
    ],
)
@pytest.mark.parametrize("part", ["tokenSecretRef", "headers"])
async def test_a_secret_that_does_not_name_this_pool_and_host_stays_here(
    server: Listening, usable_by: str, part: str
) -> None:
    ref = {"name": "s", "key": "token"}
    webhook = {part: ref if part == "tokenSecretRef" else [{"name": "X-Loot", "secretKeyRef": ref}]}
    status = f"http://127.0.0.1:{server.port}/w1"
    pool = a_pool(by_calls(server.port, statusEndpoint=status), webhook=webhook)
    vault = Vault(s={"token": CANARY})
    vault.usable_by = usable_by.format(port=server.port)
    switches = power(server.port, vault)
    needed = f"headroom.dev/usable-by=PowerPool/rack@http://127.0.0.1:{server.port}"
    for call in (switches.wake(pool, "w1"), switches.sleep(pool, "w1"), switches._ask(order_of(pool, "w1"))):
        with pytest.raises(Refused, match=needed) as caught:
            await call
        assert CANARY not in repr(caught.value)
    assert f"spec.webhook.{part}" in str(caught.value)
    assert needed in switches.calls["w1"].message, "which stands in the pool's status"
    assert server.requests == []


async def test_a_secret_for_one_host_is_not_sent_to_another_of_the_same_pool(server: Listening) -> None:
    machine = by_calls(server.port) | {"scaleDownEndpoint": "http://127.0.0.2:9/w1/down"}
    pool = a_pool(machine, webhook={"tokenSecretRef": {"name": "s"}})
    switches = power(server.port, Vault(s={"token": CANARY}))
    await switches.wake(pool, "w1")
    with pytest.raises(Refused, match=r"does not allow PowerPool/rack@http://127\.0\.0\.2:9"):
        await switches.sleep(pool, "w1")


async def test_a_redirect_carries_no_secret_on(server: Listening) -> None:
    """Not even to a host that may be called, nor to another path of the same one."""
    server.answer = answer(307, f"Location: http://127.0.0.1:{server.port}/elsewhere\r\n")
    pool = a_pool(by_calls(server.port), webhook={"tokenSecretRef": {"name": "s"}})
    with pytest.raises(Refused, match="redirects are not followed"):
        await power(server.port, Vault(s={"token": CANARY})).wake(pool, "w1")
    assert len(server.requests) == 1
