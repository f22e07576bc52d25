"""WebFetch: text of public pages, never of this machine or its network, against a real server on the loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

from reverie.settings import AgentPolicy
from reverie.tools import Output, ToolContext, WebAccess, standard_tools
from reverie.tools.web_fetch import MAX_BYTES, WebFetch, address_problem, page_text


class Site(BaseHTTPRequestHandler):
    """A few pages, and what servers do that is not nice."""

    hosts: list[str]

    def do_GET(self) -> None:
        """Answer by path."""
        self.server.hosts.append(self.headers["host"])  # type: ignore[attr-defined]
        match self.path:
            case "/page":
                self.reply(200, b"<title>T</title><p>Hello <b>you</b></p><script>no()</script>", "text/html")
            case "/plain":
                self.reply(200, "grüße".encode("latin-1"), "text/plain; charset=latin-1")
            case "/json":
                self.reply(200, b'{"a": 1}', "application/json")
            case "/image":
                self.reply(200, b"\x89PNG", "image/png")
            case "/missing":
                self.reply(404, b"nothing here", "text/plain")
            case "/near":
                self.reply(302, b"", "text/plain", location="/plain")
            case "/far":
                self.reply(302, b"", "text/plain", location="http://elsewhere.test/secret")
            case "/inside":
                self.reply(302, b"", "text/plain", location="http://169.254.169.254/latest/meta-data")
            case "/loop":
                self.reply(302, b"", "text/plain", location="/loop")
            case "/endless":
                self.reply(200, b"x" * (MAX_BYTES + 100_000), "text/plain")
            case "/packed":
                self.reply(200, b"\x1f\x8b", "text/plain", encoding="gzip")
            case _:
                self.reply(500, b"", "text/plain")

    def reply(self, status: int, body: bytes, media: str, *, location: str = "", encoding: str = "") -> None:
        """Send one answer."""
        self.send_response(status)
        self.send_header("content-type", media)
        self.send_header("content-length", str(len(body)))
        if location:
            self.send_header("location", location)
        if encoding:
            self.send_header("content-encoding", encoding)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def site() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.hosts = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(60)


def fetch(server: ThreadingHTTPServer, path: str, web: WebAccess | None = None) -> Output:
    """Fetch a page of a made-up host whose name leads to the loopback."""
    access = web or WebAccess(resolve=lambda host, port: ["127.0.0.1"], allow_private=True)
    context = ToolContext(cwd=Path("/"), web=access)
    url = f"http://docs.test:{server.server_address[1]}{path}"
    return anyio.run(WebFetch().run, {"url": url}, context)


def test_it_is_offered_only_where_the_settings_turn_it_on() -> None:
    assert "WebFetch" not in [tool.name for tool in standard_tools(AgentPolicy())]
    assert standard_tools(AgentPolicy(web_fetch=True))[-1].name == "WebFetch"


@pytest.mark.parametrize(
    ("path", "text"), [("/page", "# T\n\nHello you"), ("/plain", "grüße"), ("/json", '{"a": 1}'), ("/near", "grüße")]
)
def test_a_page_comes_as_text(site: ThreadingHTTPServer, path: str, text: str) -> None:
    output = fetch(site, path)
    assert not output.is_error
    assert output.content == text
    assert set(site.hosts) == {f"docs.test:{site.server_address[1]}"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["/far", "/inside"])
def test_a_redirect_to_another_host_is_reported_and_not_followed(site: ThreadingHTTPServer, path: str) -> None:
    output = fetch(site, path)
    assert not output.is_error
    assert "redirects to another host" in str(output.content)
    assert len(site.hosts) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/missing", "404"),
        ("/image", "not text"),
        ("/loop", "redirected more than"),
        ("/packed", "gzip"),
        ("/nowhere", "500"),
    ],
)
def test_what_is_no_page_is_an_error_that_says_what_to_do(site: ThreadingHTTPServer, path: str, says: str) -> None:
    output = fetch(site, path)
    assert output.is_error
    assert says in str(output.content)


def test_a_page_without_end_is_cut(site: ThreadingHTTPServer) -> None:
    output = fetch(site, "/endless")
    assert str(output.content).endswith("[cut here: the page is longer]")
    assert len(str(output.content)) < 250_000


def test_a_name_that_leads_to_this_machine_is_not_fetched(site: ThreadingHTTPServer) -> None:
    for addresses in (["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"]):
        output = fetch(site, "/page", WebAccess(resolve=lambda host, port, found=addresses: found))
        assert output.is_error
        assert "not fetched" in str(output.content)
    assert site.hosts == []  # type: ignore[attr-defined]


def test_the_address_that_was_looked_at_is_the_one_that_is_called(site: ThreadingHTTPServer) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["203.0.113.1"]

    output = fetch(site, "/plain", WebAccess(resolve=resolve, allow_private=True))
    assert output.content == "grüße"
    assert asked == ["docs.test"]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/x",
        "http://",
        "http:///x",
        "javascript:alert(1)",
        "//example.org",
        "http://user:password@example.org/",
        "http://exa mple.org/",
        "http://example.org:99999/",
        "http://[::1/",
        "http://localhost:1/",
        "http://127.1:1/",
        "http://2130706433:1/",
        "http://0x7f.1:1/",
        "http://[::1]:1/",
        "http://[::ffff:7f00:1]:1/",
        "http://0.0.0.0:1/",
    ],
)
def test_an_address_that_is_none_or_not_public_is_refused(url: str) -> None:
    output = anyio.run(WebFetch().run, {"url": url}, ToolContext(cwd=Path("/")))
    assert output.is_error


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "198.18.0.1",
        "240.0.0.1",
        "x",
    ],
)
def test_addresses_of_private_and_special_networks_are_known(address: str) -> None:
    assert address_problem(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"])
def test_public_addresses_are_fine(address: str) -> None:
    assert address_problem(address) == ""


def test_markup_becomes_text() -> None:
    html = (
        "<head><title>A &amp; B</title><style>x{}</style></head><body><h2>Part</h2><ul><li>one<li>two</ul>"
        "<p>See <a href='https://x.test/'>this</a>.<br>Next</p><svg><text>no</text></svg></body>"
    )
    assert page_text(html) == "# A & B\n\n## Part\n\n- one\n- two\n\nSee this (https://x.test/).\nNext"
