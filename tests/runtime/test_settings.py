"""Settings: flags win over the environment, mistakes are named, secrets are not shown."""

from __future__ import annotations

import pytest

from headroom.cli import live
from headroom.model.bandwidth import AnnotationKey, BandwidthRules, Rates
from headroom.model.errors import Misconfigured
from headroom.model.world import Caps
from headroom.runtime import settings
from headroom.runtime.bandwidth_settings import rules_of


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_default() -> None:
    found = settings.load({"log_level": "debug"}, {"HEADROOM_LOG_LEVEL": "error", "HEADROOM_WRITE_BURST": "7"})

    assert (found.log_level, found.write_burst, found.operator_namespace) == ("debug", 7, "headroom-system")


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"HEADROOM_LOG_LEVEL": "loud"}, "HEADROOM_LOG_LEVEL"),
        ({"HEADROOM_WRITES_PER_SECOND": "many"}, "HEADROOM_WRITES_PER_SECOND"),
        ({"HEADROOM_WRITES_PER_SECOND": "0"}, "HEADROOM_WRITES_PER_SECOND"),
        ({"HEADROOM_ELECT_LEADER": "perhaps"}, "HEADROOM_ELECT_LEADER"),
        ({"HEADROOM_LOGLEVEL": "info"}, "HEADROOM_LOGLEVEL"),
    ],
)
def test_a_mistake_is_named_by_its_variable(environment: dict[str, str], named: str) -> None:
    with pytest.raises(Misconfigured, match=named):
        settings.load({}, environment)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            {"log_level": "loud"},
            "--log-level (HEADROOM_LOG_LEVEL) must be one of debug, error, info, warning, not 'loud'",
        ),
        ({"write_burst": "x"}, "--write-burst (HEADROOM_WRITE_BURST) must be a whole number, not 'x'"),
        ({"write_burst": "0"}, "must be a whole number at least 1 and at most 10000, not '0'"),
        ({"writes_per_second": "x"}, "must be a number, not 'x'"),
        (
            {"evictions_per_minute": "0"},
            "--evictions-per-minute (HEADROOM_EVICTIONS_PER_MINUTE) must be a whole number",
        ),
        ({"namespace_evictions_per_minute": "1.5"}, "(HEADROOM_NAMESPACE_EVICTIONS_PER_MINUTE) must be a whole number"),
        ({"elect_leader": "perhaps"}, "must be true or false, not 'perhaps'"),
        ({"metrics_address": "8443"}, "--metrics-address (HEADROOM_METRICS_ADDRESS) must be host:port such as"),
        ({"health_address": "localhost:99999"}, "--health-address (HEADROOM_HEALTH_ADDRESS) must be host:port such as"),
        ({"health_address": "::1:80"}, "must be host:port such as"),
    ],
)
def test_a_mistake_is_told_with_what_is_wanted(flags: dict[str, str], says: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        settings.load(flags, {})
    assert says in str(caught.value)


@pytest.mark.parametrize("address", ["", ":8081", "0.0.0.0:0", "[::1]:8443", "localhost:8443"])
def test_addresses_may_be_written_in_several_ways(address: str) -> None:
    assert settings.load({"health_address": address}, {}).health_address == address


def test_variables_that_kubernetes_sets_are_not_ours() -> None:
    service = {
        "HEADROOM_SERVICE_HOST": "10.0.0.7",
        "HEADROOM_PORT_8443_TCP": "tcp://10.0.0.7:8443",
        "HEADROOM_PORT": "x",
    }

    assert settings.load({}, service).operator_namespace == "headroom-system"


def test_secrets_are_not_shown() -> None:
    found = settings.load({}, {"HEADROOM_LEDGER_URL": "postgresql://headroom:canary@db/headroom"})

    assert "canary" in found.ledger_url
    assert "canary" not in str(found.shown())


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://headroom:canary@db/usage",
        "postgres://:canary@db/usage",
        "postgresql://headroom:can@ary@db/usage",
        "postgresql://headroom:can%40ary@db/usage",
        "postgresql://headroom:can/ary@db/usage",
        "postgresql://headroom:canary@/usage",
        "postgresql://db/usage?user=headroom&password=canary",
        "postgresql://db/usage?PASSWORD=canary",
        "postgresql://db/usage?%70assword=canary",
        "postgresql://db/usage?sslmode=require&sslpassword=canary",
        "mysql://u:canary@h/d",
    ],
)
def test_a_password_in_an_argument_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(Misconfigured, match=r"^reading the flags: --ledger-url has a password") as refusal:
        settings.load({"ledger_url": url}, {})
    assert "HEADROOM_LEDGER_URL" in str(refusal.value)
    assert "can" not in str(refusal.value).replace("can read", "")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://headroom@db:5432/usage?sslmode=verify-full&passfile=/x",
        "postgresql://headroom:@db/usage",
        "sqlite:///var/lib/a:b@c.db",
        "ledger:1@2.db",
        "",
    ],
)
def test_a_url_without_a_password_may_be_an_argument(url: str) -> None:
    assert settings.load({"ledger_url": url}, {}).ledger_url == url


def test_every_process_has_a_name_of_its_own() -> None:
    assert settings.load({}, {}).identity != settings.load({}, {}).identity


def test_the_caps_of_the_settings_are_those_of_the_world() -> None:
    assert live.caps(settings.load({}, {})) == Caps()
    given = {"HEADROOM_EVICTIONS_PER_MINUTE": "7", "HEADROOM_NAMESPACE_EVICTIONS_PER_MINUTE": "3"}
    assert live.caps(settings.load({}, given)) == Caps(cluster=7, namespace=3)


def test_nothing_outside_may_be_called_unless_it_is_listed() -> None:
    assert settings.load({}, {}).allow_egress == ""
    listed = "https://power-api.example.com,wol://10.0.7.255"
    assert settings.load({}, {"HEADROOM_ALLOW_EGRESS": listed}).allow_egress == listed
    assert settings.load({"allow_egress": "10.0.7.1"}, {"HEADROOM_ALLOW_EGRESS": listed}).allow_egress == "10.0.7.1"


def test_a_list_of_pairs_is_read_and_a_slip_in_it_is_named() -> None:
    found = settings.load({"pool_namespaces": "team-a/spot=team-b + team-c, lab/spot=*"}, {})
    assert settings.pool_namespaces(found) == {"team-a/spot": ("team-b", "team-c"), "lab/spot": ("*",)}
    for wrong in ("team-a/spot", "=team-b", "a/b=", "a/b=c,a/b=d"):
        with pytest.raises(Misconfigured, match="HEADROOM_POOL_NAMESPACES"):
            settings.load({"pool_namespaces": wrong}, {})
    with pytest.raises(Misconfigured, match="HEADROOM_ORPHAN_POLICY"):
        settings.load({"orphan_policy": "Delete"}, {})


def test_bandwidth_is_ruled_by_settings() -> None:
    assert rules_of(settings.load({}, {})) == BandwidthRules()
    given = {
        "HEADROOM_BANDWIDTH_MODE": "Extender",
        "HEADROOM_BANDWIDTH_EGRESS_ANNOTATIONS": "x.io/up=Mbps, x.io/bits",
        "HEADROOM_BANDWIDTH_DEFAULTS": "20M/10M",
        "HEADROOM_BANDWIDTH_NETWORK": "25G/10G",
        "HEADROOM_BANDWIDTH_SIBLINGS": "true",
        "HEADROOM_BANDWIDTH_DEVICE_PLUGIN_LABELS": "b=,a=1",
    }
    found = rules_of(settings.load({}, given))
    assert (found.mode, found.siblings, found.defaults) == ("Extender", True, Rates(20_000_000, 10_000_000))
    assert found.egress == (AnnotationKey("x.io/up", "Mbps"), AnnotationKey("x.io/bits"))
    assert found.default_capacity.network == Rates(25 * 10**9, 10**10)
    assert found.device_plugin_labels == (("a", "1"), ("b", ""))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("mode", "On"),
        ("egress_annotations", ""),
        ("egress_annotations", "a b"),
        ("egress_annotations", "x.io/up=bytes"),
        ("egress_annotations", "x.io/up,x.io/up"),
        ("ingress_annotations", "kubernetes.io/egress-bandwidth"),
        ("defaults", "20"),
        ("local", ""),
        ("network", "-1G"),
        ("network", "1G/"),
        ("siblings", "perhaps"),
        ("device_plugin_labels", "a"),
    ],
)
def test_a_slip_in_the_rules_of_bandwidth_is_named(name: str, wrong: str) -> None:
    variable = f"HEADROOM_BANDWIDTH_{name.upper()}"
    with pytest.raises(Misconfigured, match=variable):
        settings.load({}, {variable: wrong})
