"""Links that an administrator sets: they lead where they say, whatever a namespace or a pod is called."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.model.errors import Misconfigured
from headroom.runtime.dashboard_settings import ToolLink, presentation_of
from headroom.runtime.settings import Settings, load

GRAFANA = "https://grafana.example.com/d/gpu?var-namespace={namespace}&var-pod={pod}#{pod}"


def link_of(text: str) -> ToolLink:
    [found] = presentation_of(Settings(dashboard_links=text)).links
    return found


def test_links_are_shown_where_all_their_names_are_known() -> None:
    links = f"Grafana={GRAFANA} Team_logs=https://logs.example.com/{{namespace}} Alerts=http://alerts.example.com:9093/#/alerts"
    told = presentation_of(Settings(dashboard_links=links))
    assert [each["name"] for each in told.links_for()] == ["Alerts"]
    assert told.links_for(namespace="lab") == [{"name": "Team logs", "href": "https://logs.example.com/lab"}]
    assert told.links_for(namespace="lab", pod="p")[0]["href"] == (
        "https://grafana.example.com/d/gpu?var-namespace=lab&var-pod=p#p"
    )


@pytest.mark.parametrize(
    "text",
    [
        "Evil=javascript:alert(1)//{pod}",
        "Evil=JaVaScRiPt:alert(1)",
        "Evil=data:text/html,x",
        "Evil=//evil.example.com/{pod}",
        "Evil=/here",
        "Evil=https:///{pod}",
        "Evil=https://{pod}.example.com/",
        "Evil=https://example.com:{pod}/",
        "Evil=https://{namespace}@example.com/",
        "Evil=https://user:secret@example.com/",
        "Evil={pod}://example.com/",
        "Evil=https{pod}://example.com/",
        "Evil=https://example.com/{}",
        "Evil=https://example.com/{0}",
        "Evil=https://example.com/{pod.__class__}",
        "Evil=https://example.com/{pod[0]}",
        "Evil=https://example.com/{pod!r}",
        "Evil=https://example.com/{pod:>99999}",
        "Evil=https://example.com/{user}",
        "Evil=https://example.com/{pod",
        "Evil=https://example.com:port/",
        'Evil=https://example.com/"onmouseover=x',
        "Evil=https://example.com/<script>",
        "Evil=https://example.com\\@evil.example.com/",
        "Evil=https://[::1",
        "Evil",
        "=https://example.com/",
        "A=https://example.com/ A=https://example.org/",
    ],
)
def test_a_template_that_may_lead_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="--dashboard-links"):
        presentation_of(Settings(dashboard_links=text))


@given(st.text(), st.text())
def test_no_name_leaves_its_place(namespace: str, pod: str) -> None:
    try:
        found = urlsplit(link_of(f"Grafana={GRAFANA}").to({"namespace": namespace, "pod": pod}))
    except UnicodeEncodeError:
        return  # half a pair of surrogates: no name of Kubernetes
    assert (found.scheme, found.netloc, found.path) == ("https", "grafana.example.com", "/d/gpu")
    asked = parse_qs(found.query, keep_blank_values=True, strict_parsing=True)
    if not {namespace, pod} & {".", ".."}:
        assert asked == {"var-namespace": [namespace], "var-pod": [pod]}
    assert all(each.isalnum() or each in "-._~%" for each in found.fragment)


@pytest.mark.parametrize(
    "pod", ["../../admin", "a/b", "?x=y", "#", "%2e%2e", "a&b=c", "{namespace}", "\r\nSet-Cookie: x"]
)
def test_a_name_is_one_part_of_a_path(pod: str) -> None:
    found = link_of("Logs=https://logs.example.com/pods/{pod}/tail").to({"pod": pod})
    assert found.startswith("https://logs.example.com/pods/")
    assert found.count("/") == 5
    assert not set(found) & set("?#\r\n{}")


def test_settings_that_cannot_be_read_are_refused_at_the_start() -> None:
    with pytest.raises(Misconfigured, match="--dashboard-links"):
        load({"dashboard_links": "x=ftp://example.com"}, {})
    with pytest.raises(Misconfigured, match="--dashboard-user"):
        load({"dashboard_user": "not a label"}, {})
    assert presentation_of(load({"dashboard_user": "example.com/user"}, {})).user_key == "example.com/user"


def test_a_dot_alone_stays_a_name() -> None:
    """A browser takes `..` for the folder above, also where it is written as %2e%2e."""
    found = link_of("Logs=https://logs.example.com/pods/{pod}/tail").to({"pod": ".."})
    assert found == "https://logs.example.com/pods/_/tail"
