"""Settings: flags win over the environment, mistakes are named, secrets are not shown."""

from __future__ import annotations

import pytest

from headroom.model.errors import Misconfigured
from headroom.runtime import settings


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_default() -> None:
    found = settings.load({"log_level": "debug"}, {"HEADROOM_LOG_LEVEL": "error", "HEADROOM_WRITE_BURST": "7"})

    assert (found.log_level, found.write_burst, found.namespace) == ("debug", 7, "headroom-system")


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


def test_variables_that_kubernetes_sets_are_not_ours() -> None:
    service = {
        "HEADROOM_SERVICE_HOST": "10.0.0.7",
        "HEADROOM_PORT_8443_TCP": "tcp://10.0.0.7:8443",
        "HEADROOM_PORT": "x",
    }

    assert settings.load({}, service).namespace == "headroom-system"


def test_secrets_are_not_shown() -> None:
    found = settings.load({"ledger_url": "postgresql://headroom:canary@db/headroom"}, {})

    assert "canary" not in str(found.shown())


def test_every_process_has_a_name_of_its_own() -> None:
    assert settings.load({}, {}).identity != settings.load({}, {}).identity
