"""Reading kubeconfigs and the pod's own service account, right and wrong."""

import base64
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from headroom.adapters.kube import config
from headroom.adapters.kube.config import ClientConfig
from headroom.adapters.kube.tls import tls_context
from headroom.model.errors import Misconfigured
from tests.certificates import Authority

SECRET = "do-not-show-this"


@pytest.fixture
def pems(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "pems"
    folder.mkdir()
    authority = Authority(folder)
    certificate, key = authority.client("me", [])
    return {"ca": authority.file, "certificate": certificate, "key": key}


def encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def document(
    cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "lab"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": SECRET} if user is None else dict(user)}],
        **more,
    }


def written(folder: Path, content: Any, name: str = "config") -> Path:
    file = folder / name
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def loaded(folder: Path, content: Any, context: str | None = None) -> ClientConfig:
    return config.load(str(written(folder, content)), context, environ={})


def complaint(folder: Path, content: Any, context: str | None = None) -> str:
    with pytest.raises(Misconfigured) as caught:
        loaded(folder, content, context)
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder) in text
    assert SECRET not in text
    return text


def test_token_and_authority(tmp_path: Path, pems: dict[str, Path]) -> None:
    found = loaded(tmp_path, document({"certificate-authority-data": encoded(pems["ca"])}))
    assert (found.server, found.namespace, found.token) == ("https://10.0.0.1:6443", "lab", SECRET)
    tls = tls_context(found)
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1


def test_secrets_do_not_show(tmp_path: Path, pems: dict[str, Path]) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "env": [{"name": "A", "value": SECRET}]}
    user = {"token": SECRET, "exec": plugin, "client-certificate-data": encoded(pems["certificate"])}
    user["client-key-data"] = encoded(pems["key"])
    shown = repr(loaded(tmp_path, document(user=user)))
    assert SECRET not in shown
    assert "PRIVATE KEY" not in shown


def test_client_certificate_from_files_beside_the_kubeconfig(tmp_path: Path, pems: dict[str, Path]) -> None:
    user = {"client-certificate": "pems/me.crt", "client-key": "./pems/me.key"}
    found = loaded(tmp_path, document({"certificate-authority": "pems/ca.crt"}, user))
    assert found.certificate is not None
    assert found.certificate.file == pems["certificate"]
    assert found.authority is not None
    assert found.authority.read() == pems["ca"].read_bytes()


def test_data_wins_over_file(tmp_path: Path, pems: dict[str, Path]) -> None:
    cluster = {"certificate-authority-data": encoded(pems["ca"]), "certificate-authority": "nowhere.crt"}
    assert loaded(tmp_path, document(cluster)).authority is not None


def test_token_file_beside_the_kubeconfig(tmp_path: Path) -> None:
    assert loaded(tmp_path, document(user={"tokenFile": "t"})).token_file == tmp_path / "t"


def test_a_token_of_digits_is_text(tmp_path: Path) -> None:
    text = yaml.safe_dump(document()).replace(SECRET, "0123456789")
    assert loaded(tmp_path, text).token == "0123456789"


def test_json_nulls_and_unknown_fields_are_fine(tmp_path: Path) -> None:
    plugin: dict[str, Any] = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": None}
    plugin |= {"env": None, "interactiveMode": "IfAvailable", "provideClusterInfo": False, "installHint": None}
    content = document(user={"exec": plugin}, preferences={}, extensions=None)
    found = loaded(tmp_path, json.dumps(content))
    assert found.plugin is not None
    assert found.plugin.command == "aws"


def test_plugin_with_a_path_is_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./bin/login"}
    found = loaded(tmp_path, document(user={"exec": plugin})).plugin
    assert found is not None
    assert found.command == str(tmp_path / "bin/login")


def test_insecure_and_server_name(tmp_path: Path) -> None:
    found = loaded(tmp_path, document({"insecure-skip-tls-verify": True, "tls-server-name": "kube"}))
    assert (found.verify, found.server_name) == (False, "kube")


def test_context_by_name(tmp_path: Path) -> None:
    content = document()
    content["contexts"].append({"name": "d", "context": {"cluster": "k2", "user": "u"}})
    content["clusters"].append({"name": "k2", "cluster": {"server": "http://127.0.0.1:8001"}})
    assert loaded(tmp_path, content, "d").server == "http://127.0.0.1:8001"
    assert "c, d" in complaint(tmp_path, content, "e")


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    one = {"users": [{"name": "u", "user": {"token": "first"}}], "current-context": ""}
    two = document({"server": "https://second"}, {"token": "second", "tokenFile": "ignored-with-its-entry"})
    three = document({"server": "https://third"}) | {"current-context": "other"}
    files = [written(tmp_path, each, f"f{number}") for number, each in enumerate((one, two, three))]
    files.insert(1, tmp_path / "missing")
    found = config.load(environ={"KUBECONFIG": os.pathsep.join(map(str, files))})
    assert (found.server, found.token, found.token_file) == ("https://second", "first", None)


def test_home_is_the_last_resort(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube", document())
    assert config.load(environ={"HOME": str(tmp_path)}).token == SECRET


def test_nothing_at_all_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"no kubeconfig at .*give --kubeconfig or set KUBECONFIG"):
        config.load(environ={"HOME": str(tmp_path)})


@pytest.fixture
def account(tmp_path: Path, pems: dict[str, Path]) -> Path:
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text(SECRET)
    (folder / "namespace").write_text("headroom\n")
    (folder / "ca.crt").write_bytes(pems["ca"].read_bytes())
    return folder


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_in_a_pod(account: Path, host: str, server: str) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443", "HOME": str(account)}
    found = config.load(environ=environ, service_account=account)
    assert (found.server, found.namespace, found.token_file) == (server, "headroom", account / "token")


def test_in_a_pod_without_a_token(account: Path) -> None:
    (account / "token").unlink()
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(account)}
    with pytest.raises(Misconfigured, match="automountServiceAccountToken"):
        config.load(environ=environ, service_account=account)


PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}
MISTAKES: list[tuple[str, Any, list[str]]] = [
    ("no YAML", "a: [", ["not YAML"]),
    ("no mapping", "just text", ["the document", "expected `object`"]),
    ("wrong type", document(users=[{"name": "u", "user": {"token": ["x"]}}]), ["users[0].user.token", "expected `str"]),
    ("no name", document(clusters=[{"cluster": {}}]), ["clusters[0]", "`name`"]),
    ("no current context", document() | {"current-context": ""}, ["no context is chosen", "there are: c"]),
    ("unknown context", document() | {"current-context": "z"}, ["no context 'z'"]),
    ("unknown cluster", document(clusters=[]), ["no cluster 'k'", "correct context 'c'"]),
    ("unknown user", document(users=None), ["no user 'u'"]),
    ("no server", document({"server": None}), ["cluster 'k'", "server must be an address"]),
    ("no scheme", document({"server": "10.0.0.1:6443"}), ["server must be an address"]),
    ("proxy", document({"proxy-url": "http://p"}), ["proxy-url is not supported"]),
    ("bad base64", document({"certificate-authority-data": "%%%"}), ["certificate-authority-data must be base64"]),
    ("no PEM", document({"certificate-authority-data": "aGVsbG8="}), ["certificate-authority-data", "no PEM"]),
    ("missing file", document({"certificate-authority": "no.crt"}), ["certificate-authority", "No such file"]),
    ("CA and insecure", document({"certificate-authority": "x", "insecure-skip-tls-verify": True}), ["insecure-skip"]),
    ("certificate alone", document(user={"client-certificate-data": "aGk="}), ["go together"]),
    ("password", document(user={"username": "u", "password": SECRET}), ["username and password are not supported"]),
    ("auth provider", document(user={"auth-provider": {"name": "gcp"}}), ["auth-provider", "use exec"]),
    ("impersonation", document(user={"token": SECRET, "as": "root"}), ["as is not supported"]),
    ("old plugin", document(user={"exec": PLUGIN | {"apiVersion": "x/v1alpha1"}}), ["exec.apiVersion must be"]),
    ("empty plugin", document(user={"exec": PLUGIN | {"command": ""}}), ["exec.command is missing"]),
    (
        "bad key",
        document(user={"client-certificate-data": "aGk=", "client-key-data": "aGk="}),
        ["not a PEM certificate"],
    ),
]


@pytest.mark.parametrize(("content", "words"), [each[1:] for each in MISTAKES], ids=[each[0] for each in MISTAKES])
def test_mistakes_are_named(tmp_path: Path, content: Any, words: list[str]) -> None:
    text = complaint(tmp_path, content)
    assert all(word in text for word in words), text


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no such file; check the path"):
        config.load(str(tmp_path / "nowhere"))
    with pytest.raises(Misconfigured, match="Is a directory"):
        config.load(str(tmp_path))
    file = written(tmp_path, document())
    file.chmod(0)
    if not os.access(file, os.R_OK):  # root may read everything
        with pytest.raises(Misconfigured, match="Permission denied"):
            config.load(str(file))
    file.chmod(stat.S_IRUSR)
