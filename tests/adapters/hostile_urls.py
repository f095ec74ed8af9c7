"""Addresses that somebody might write into a resource to make the operator call what it must not. PORT is where a server listens.

Each is refused although the list under test allows every number, every name below attacker.example, and some plain names: what is
wrong with them is not that nobody listed them.
"""

from __future__ import annotations

from typing import Final

API_SERVER: Final = "10.96.0.1"
"""The number of the API server."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


REBINDING: Final[dict[str, tuple[str, ...]]] = {
    "loopback.attacker.example": ("127.0.0.1",),
    "loopback-2.attacker.example": ("127.8.8.8",),
    "loopback-6.attacker.example": ("::1",),
    "mapped.attacker.example": ("::ffff:127.0.0.1",),
    "compatible.attacker.example": ("::127.0.0.1",),
    "translated.attacker.example": ("::ffff:0:127.0.0.1",),
    "nat64.attacker.example": ("64:ff9b::7f00:1",),
    "nat64-metadata.attacker.example": ("64:ff9b::a9fe:a9fe",),
    "nat64-local.attacker.example": ("64:ff9b:1::7f00:1",),
    "six-to-four.attacker.example": ("2002:7f00:1::1",),
    "teredo.attacker.example": ("2001:0:7f00:1::80ff:fffe",),
    "isatap.attacker.example": ("fd00::5efe:7f00:1",),
    "zero.attacker.example": ("0.0.0.0",),
    "zero-6.attacker.example": ("::",),
    "metadata.attacker.example": ("169.254.169.254",),
    "metadata-6.attacker.example": ("fd00:ec2::254",),
    "metadata-ali.attacker.example": ("100.100.100.200",),
    "metadata-azure.attacker.example": ("168.63.129.16",),
    "link.attacker.example": ("169.254.1.1",),
    "link-6.attacker.example": ("fe80::1",),
    "scoped.attacker.example": ("fe80::1%eth0",),
    "multicast.attacker.example": ("224.0.0.1",),
    "broadcast.attacker.example": ("255.255.255.255",),
    "reserved.attacker.example": ("240.0.0.1",),
    "api.attacker.example": (API_SERVER,),
    "first-good.attacker.example": ("10.9.9.9", "127.0.0.1"),
    "last-good.attacker.example": ("169.254.169.254", "10.9.9.9"),
    "one-of-many.attacker.example": ("10.9.9.1", "10.9.9.2", "10.9.9.3", "::1", "10.9.9.4"),
    "127.0.0.1.nip.attacker.example": ("127.0.0.1",),
    "xn--lcalhost-r3a.attacker.example": ("127.0.0.1",),
    "localhost": ("127.0.0.1", "::1"),
    "localhost.localdomain": ("127.0.0.1",),
    "ip6-localhost": ("::1",),
    "metadata": ("169.254.169.254",),
    "metadata.google.internal": ("169.254.169.254",),
    "instance-data": ("169.254.169.254",),
    "kubernetes": (API_SERVER,),
    "kubernetes.default": (API_SERVER,),
    "kubernetes.default.svc": (API_SERVER,),
    "kubernetes.default.svc.cluster.local": (API_SERVER,),
}
"""Names that are listed, or below a listed one, and what they stand for."""

HOSTS: Final[dict[str, tuple[str, ...]]] = {
    "this machine": _words(
        "127.0.0.1 127.0.0.2 127.1.2.3 127.255.255.254 127.1 127.0.1 2130706433 2130706434 017700000001 0x7f000001 0X7F000001"
        " 0x7f.0.0.1 0x7f.0x0.0x0.0x1 0x7f.1 0x7f.0.1 0177.0.0.1 0177.0.0.01 0177.0.1 00177.0.0.1 127.0.0.0x1 127.0.0.01"
        " 127.000.000.001 0127.0.0.1 127.0.0.1. 127.1. 2130706433. 127.0.0.1.. 0 0. 00 0x 0x0 0.0 0.0.0.0 0.0.0.0. 0.1.2.3"
        " 4294967297 6425673729 127.0.0.256 127.0.0.-1 127.0.0.1.5 256.0.0.1 1e9"
    ),
    "this machine in IPv6": _words(
        "[::1] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::0001] [0::1] [::] [0:0:0:0:0:0:0:0]"
        " [::ffff:127.0.0.1] [::FFFF:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:ffff:7f00:0001] [::127.0.0.1] [::7f00:1]"
        " [::ffff:0:127.0.0.1] [::ffff:0.0.0.0] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::127.0.0.1] [2002:7f00:1::]"
        " [2002:7f00:0001::1] [2001:0:7f00:1::1] [2001:0000:4136:e378:8000:63bf:80ff:fffe] [fd00::5efe:127.0.0.1]"
        " [fd00::200:5efe:7f00:1] [::1%25lo] [::1%lo] [::1%0] [::1]] [[::1]] [::1 ::1] [::1]x x[::1] [127.0.0.1] [0x7f000001]"
        " [::ffff:127.1] [::ffff:0x7f000001] [v1.::1] [1:2:3:4:5:6:7:8:9] [:::1] [localhost] ::1"
    ),
    "its links, the cloud, and nobody": _words(
        "169.254.169.254 169.254.169.253 169.254.170.2 169.254.170.23 169.254.0.1 169.254.255.255 2852039166 0xa9fea9fe"
        " 0251.0376.0251.0376 0xa9.0xfe.0xa9.0xfe 169.254.43518 169.16689662 169.254.0xa9fe 169.254.169.254. 100.100.100.200"
        " 1684301000 168.63.129.16 192.0.0.192 [fd00:ec2::254] [fd00:ec2::23] [fd00:0ec2::0254] [fd20:ce::254]"
        " [::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [::169.254.169.254] [64:ff9b::169.254.169.254] [64:ff9b::a9fe:a9fe]"
        " [2002:a9fe:a9fe::1] [fd00::5efe:a9fe:a9fe] [64:ff9b::6464:64c8] [fe80::1] [fe80::a9fe:a9fe] [febf::1] [fe80::1%25eth0]"
        " [fe80::1%eth0] [fec0::1] [ff02::1] [ff01::1] [100::1] [2001:db8::1] [3fff::1] 224.0.0.1 239.255.255.250 240.0.0.1"
        " 255.255.255.255 255.255.255.254 192.0.2.1 198.51.100.7 203.0.113.9 198.18.0.1 192.88.99.1 192.0.0.8"
    ),
    "the API server": (API_SERVER, "0xa600001", "10.6291457", "173015041", "012.0140.0.1", f"[::ffff:{API_SERVER}]"),
    "hosts that are read in several ways": (
        "user@good.example",
        "user:word@good.example",
        "good.example@127.0.0.1",
        "good.example:80@127.0.0.1",
        "127.0.0.1@good.example",
        "@127.0.0.1",
        ":@127.0.0.1",
        "a@b@127.0.0.1",
        "good.example%40127.0.0.1",
        "good.example%23@127.0.0.1",
        "good.example%2f@127.0.0.1",
        "good.example\\@127.0.0.1",
        "127.0.0.1\\@good.example",
        "good.example\\.127.0.0.1",
        "127.0.0.1#@good.example",
        "good.example#@127.0.0.1",
        "good.example;@127.0.0.1",
        "good.example&@127.0.0.1",
        "127.0.0.1;good.example",
        "127.0.0.1,good.example",
        "good.example|127.0.0.1",
        "%31%32%37.0.0.1",
        "%31%32%37%2e%30%2e%30%2e%31",
        "127%2e0%2e0%2e1",
        "127%E3%80%820.0.1",
        "%6c%6f%63%61%6c%68%6f%73%74",
        "localhost%00",
        "localhost%2egood.example",
        "%ff",
        "good.example%00.attacker.example",
        "%5b::1%5d",
        "good_example",
        "good..example",
        ".good.example",
        "good.example.",
        "good.example..",
        "-good.example",
        "good-.example",
        "*.attacker.example",
        "*",
        "good.example:80:80",
        "$(hostname)",
        "${HOST}",
        "'127.0.0.1'",
        "a" * 64 + ".attacker.example",
        "a." * 130 + "attacker.example",
    ),
    "letters that look like others": (
        "１２７.0.0.1",
        "127。0。0。1",
        "127．0．0．1",
        "127｡0｡0｡1",
        "①②⑦.⓪.⓪.①",
        "𝟏𝟐𝟕.𝟎.𝟎.𝟏",
        "１２７．０．０．１",
        "۱۲۷.0.0.1",
        "ｌｏｃａｌｈｏｓｔ",
        "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
        "localho\u017ft",
        "loca\u200blhost",
        "local\u00adhost",
        "loc\u2060alhost",
        "\ufefflocalhost",
        "localhost\u3002",
        "good\uff0eexample",
        "good.example\uff0f@127.0.0.1",
        "good.example\u2100.attacker.example",
        "good.ex\u0430mple",
        "bücher.attacker.example",
        "faß.attacker.example",
        "\u202eelpmaxe.doog",
        "[\uff1a\uff1a1]",
        "\u2488\u2488\u2488\u2488",
    ),
    "what no address has": (
        "127.0.0.1 ",
        " 127.0.0.1",
        "127.0.0.1\t",
        "127.0.0.1\n",
        "good.example\r\nHost: 127.0.0.1",
        "good.example\nX: y",
        "good.example\x00",
        "good.example\x00127.0.0.1",
        "good.exam\tple",
        "good.exam\nple",
        "good.example\x7f",
        "good.example\x0b",
        "good.example\x85",
        "good.example\u2028",
        '"127.0.0.1"',
        "<127.0.0.1>",
        "{127.0.0.1}",
        "^127.0.0.1",
        "`127.0.0.1`",
        "",
    ),
}
"""Hosts that are put before `:PORT/latest`, each a way to name something that must not be called."""

WHOLE: Final[dict[str, tuple[str, ...]]] = {
    "other schemes": (
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
        "FILE:///etc/passwd",
        "gopher://127.0.0.1:PORT/_GET%20/",
        "ftp://127.0.0.1:PORT/",
        "tftp://127.0.0.1:PORT/x",
        "dict://127.0.0.1:PORT/info",
        "ldap://127.0.0.1:PORT/",
        "ssh://127.0.0.1:PORT/",
        "ws://127.0.0.1:PORT/",
        "wss://127.0.0.1:PORT/",
        "wol://127.0.0.1:PORT",
        "unix:///var/run/docker.sock",
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
        "data:text/plain,on",
        "javascript:alert(1)",
        "jar:http://127.0.0.1:PORT/!/",
        "view-source:http://127.0.0.1:PORT/",
        "blob:http://127.0.0.1:PORT/",
        "mailto:root@127.0.0.1",
        "netdoc:///etc/passwd",
        "HTTP://127.0.0.1:PORT/",
        "hTTp://127.0.0.1:PORT/",
        "httpx://127.0.0.1:PORT/",
        "https+http://127.0.0.1:PORT/",
        "xhttp://127.0.0.1:PORT/",
    ),
    "no scheme, or half of one": (
        "",
        "/",
        "//127.0.0.1:PORT/",
        "///127.0.0.1:PORT/",
        "127.0.0.1:PORT",
        "127.0.0.1:PORT/latest",
        "localhost:PORT/",
        "http:/127.0.0.1:PORT/",
        "http:127.0.0.1:PORT/",
        "http:///127.0.0.1:PORT/",
        "http:////127.0.0.1:PORT/",
        "http:\\\\127.0.0.1:PORT\\",
        "http:/\\127.0.0.1:PORT/",
        "http:\\/127.0.0.1:PORT/",
        "://127.0.0.1:PORT/",
        "http//127.0.0.1:PORT/",
        "http://",
        "http://?@127.0.0.1:PORT",
        "http://#@127.0.0.1:PORT",
        "http://:PORT/",
        " http://127.0.0.1:PORT/",
        "\thttp://127.0.0.1:PORT/",
        "\x00http://127.0.0.1:PORT/",
        "ht\ntp://127.0.0.1:PORT/",
        "http\t://127.0.0.1:PORT/",
        "http:\n//127.0.0.1:PORT/",
        "http://127.0.0.1:PORT/ ",
        "http://127.0.0.1:PORT/\r\nX-Injected: yes",
        "http://good.example/\r\nHost: 127.0.0.1\r\n\r\n",
        "http://good.example/a b",
        "http://good.example/\u2025/\u2025/",
        "http://good.example/#fragment",
        "http://good.example/path#@127.0.0.1:PORT/",
        "http://good.example/\\..\\..\\",
        "http://good.example/" + "a" * 3000,
    ),
    "ports that are none": (
        "http://127.0.0.1:0/",
        "http://good.example:0/",
        "http://good.example:65536/",
        "http://good.example:99999/",
        "http://good.example:4294967376/",
        "http://good.example:-1/",
        "http://good.example:+80/",
        "http://good.example:080/",
        "http://good.example:0x50/",
        "http://good.example:80a/",
        "http://good.example: 80/",
        "http://good.example:80 /",
        "http://good.example:/",
        "http://good.example:\uff18\uff10/",
        "http://good.example:80:127.0.0.1/",
        "http://good.example:80@127.0.0.1:PORT/",
    ),
    "names that only look listed": (
        "http://good.example.attacker.test:PORT/",
        "http://xgood.example:PORT/",
        "http://good.example.:PORT/",
        "http://attacker.example:PORT/",
        "http://xattacker.example:PORT/",
        "http://attacker.example.test:PORT/",
        "http://good-example:PORT/",
        "http://example:PORT/",
        "http://good.example:8/",
        "ftp://good.example:PORT/",
        "http://www.good.example:PORT/",
    ),
}
"""Whole addresses."""


def urls(port: int) -> dict[str, list[str]]:
    """Every hostile address, by what is wrong with it."""
    found = {what: [f"http://{host}:{port}/latest" for host in hosts] for what, hosts in HOSTS.items()}
    found["names that stand for something else"] = [f"http://{name}:{port}/latest" for name in REBINDING]
    # With TLS, and with upper-case letters: the same names, the same answer.
    found["the same with TLS"] = [f"https://{name.upper()}:{port}/latest" for name in REBINDING]
    return found | {what: [each.replace("PORT", str(port)) for each in whole] for what, whole in WHOLE.items()}
