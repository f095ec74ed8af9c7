"""What an answer says of a machine's power; nothing that anybody could send is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.adapters.power.words import power_in


@pytest.mark.parametrize(
    ("body", "power"),
    [
        (b"on", "On"),
        (b"ON\n", "On"),
        (b" Running ", "On"),
        (b'"up"', "On"),
        (b"true", "On"),
        (b"1", "On"),
        (b"powered_on", "On"),
        (b"Powered On", "On"),
        (b"off", "Off"),
        (b"stopped", "Off"),
        (b"down", "Off"),
        (b"shut off", "Off"),
        (b"false", "Off"),
        (b"0", "Off"),
        (b'{"power": "on"}', "On"),
        (b'{"Power": "Off"}', "Off"),
        (b'{"power": true}', "On"),
        (b'{"power": 0}', "Off"),
        (b'{"PowerState": "On"}', "On"),
        (b'{"power_state": "off"}', "Off"),
        (b'{"state": "running"}', "On"),
        (b'{"status": "stopped"}', "Off"),
        # The clearer word counts, and one that cannot be read is not passed over for another.
        (b'{"status": "ok", "power": "off"}', "Off"),
        (b'{"state": "on", "power": "off"}', "Off"),
        (b'{"power": "who knows", "state": "on"}', "Unknown"),
        (b'{"power": "on", "Power": "off"}', "Unknown"),
        (b'{"power": "on", "POWER": "on"}', "On"),
        (b"", "Unknown"),
        (b"ok", "Unknown"),
        (b"poweringon", "Unknown"),
        (b"PoweringOff", "PoweringOff"),
        (b'{"state": "shutting-down"}', "PoweringOff"),
        (b"not off", "Unknown"),
        (b"10", "Unknown"),
        (b"1.0", "Unknown"),
        (b"null", "Unknown"),
        (b"[]", "Unknown"),
        (b'["on"]', "Unknown"),
        (b"{}", "Unknown"),
        (b'{"power": null}', "Unknown"),
        (b'{"power": {"state": "on"}}', "Unknown"),
        (b'{"data": {"power": "on"}}', "Unknown"),
        (b'{"power": "on"', "Unknown"),
        (b"<html><body>on</body></html>", "Unknown"),
        (b"\xff\xfe\x00", "Unknown"),
        (b"[" * 100_000, "Unknown"),
        ("ｏｎ".encode(), "Unknown"),
    ],
)
def test_a_word_is_believed_if_it_is_clear(body: bytes, power: str) -> None:
    assert power_in(body) == power


@given(st.one_of(st.binary(max_size=64), st.text(max_size=64).map(str.encode)))
def test_nothing_is_an_error(body: bytes) -> None:
    assert power_in(body) in ("On", "Off", "Unknown")
