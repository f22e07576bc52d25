"""Fetch a web page without being led to a private address.

The host name is resolved once, every address is checked, and the connection uses a checked address, so that the name
cannot resolve to another machine afterwards. A redirect to another host is reported and not followed.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import anyio
import anyio.to_thread

from ..errors import InputError
from ..extras import install_command
from ..values import record
from .context import WebAccess

MAX_BYTES: Final = 3_000_000
SECONDS: Final = 30.0
_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_HEADERS: Final = {
    "user-agent": "reverie (WebFetch)",
    "accept": "text/html, text/*, application/json, application/xml;q=0.9, */*;q=0.1",
    "accept-encoding": "identity",
}


@record
class WebPage:
    """A fetched page; ``elsewhere`` is the address of a redirect, ``cut`` says that ``data`` is incomplete."""

    url: str
    status: int = 200
    media: str = ""
    charset: str = ""
    data: bytes = b""
    cut: bool = False
    elsewhere: str = ""


async def fetch(url: str, web: WebAccess) -> WebPage:
    """Fetch a page, following redirects on the same host; cut it at ``MAX_BYTES``.

    A redirect to another host is returned in ``elsewhere``. Raise ``InputError`` with advice if the fetch fails.
    """
    try:
        with anyio.fail_after(SECONDS):
            return await _follow(url, web)
    except TimeoutError:
        raise InputError(
            f"{url} did not answer within {SECONDS:g} seconds; try again later or use another source"
        ) from None


async def _follow(url: str, web: WebAccess) -> WebPage:
    host = _parts(url).hostname
    for _ in range(_MAX_REDIRECTS + 1):
        found = await _get(url, web)
        if not found.elsewhere:
            return found
        url = urljoin(url, found.elsewhere)
        if _parts(url).hostname != host:
            return WebPage(url=found.url, status=found.status, elsewhere=url)
    raise InputError(f"{url} was redirected more than {_MAX_REDIRECTS} times; use another address")


async def _get(url: str, web: WebAccess) -> WebPage:
    try:
        import httpx2
    except ModuleNotFoundError:
        raise InputError(
            f"WebFetch needs the package httpx2, which is not installed; tell the user: {install_command('web')}"
        ) from None
    parts = _parts(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = await _address(host, port, web)
    shown = f"[{address}]" if ":" in address else address
    pinned = urlunsplit((parts.scheme, f"{shown}:{port}", parts.path or "/", parts.query, ""))
    headers = {**_HEADERS, "host": parts.netloc}
    # No proxy and no environment settings: the connection must use the checked address.
    async with httpx2.AsyncClient(trust_env=False, timeout=SECONDS, follow_redirects=False) as client:
        try:
            request = client.build_request("GET", pinned, headers=headers, extensions={"sni_hostname": host})
            response = await client.send(request, stream=True)
            try:
                return await _read_response(url, response)
            finally:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
        except httpx2.HTTPError as error:
            raise InputError(
                f"{url} could not be fetched ({error or type(error).__name__}); check the address"
            ) from None


async def _read_response(url: str, response: Any) -> WebPage:
    headers: Mapping[str, str] = response.headers
    status: int = response.status_code
    if status in _REDIRECTS and headers.get("location"):
        return WebPage(url, status, elsewhere=headers["location"])
    if headers.get("content-encoding", "identity") != "identity":
        raise InputError(
            f"{url} answers only in {headers['content-encoding']}, which is not supported; use another source"
        )
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > MAX_BYTES:
            break
    media, _, rest = headers.get("content-type", "text/plain").partition(";")
    charset = rest.partition("charset=")[2].split(";")[0].strip(" \"'")
    return WebPage(url, status, media.strip().lower(), charset, bytes(data[:MAX_BYTES]), len(data) > MAX_BYTES)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        valid = parts.port is None or 0 < parts.port < 65_536
        host = (parts.hostname or "").encode("idna") if parts.hostname else b""
    except (ValueError, UnicodeError):
        raise InputError(f"{url[:200]!r} is no address; give one like https://docs.python.org/3/") from None
    if parts.scheme not in ("http", "https") or not host or not valid or any(ord(letter) <= 32 for letter in url):
        raise InputError(f"{url[:200]!r} cannot be fetched: give an address that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise InputError("an address with a user name or password in it is not fetched; leave them out")
    return parts


async def _address(host: str, port: int, web: WebAccess) -> str:
    """Return the IP address to connect to; raise if any of the host's addresses is private and not allowed."""
    resolve = web.resolve or _addresses_of
    try:
        found = await anyio.to_thread.run_sync(resolve, host, port, abandon_on_cancel=True)
    except OSError as error:
        raise InputError(f"the host {host} cannot be found ({error}); check the address") from None
    if not found:
        raise InputError(f"the host {host} has no address; check it")
    for address in found:
        problem = "" if web.allow_private else address_problem(address)
        if problem:
            raise InputError(f"{host} is {address}, {problem}, which is not fetched; use Bash if the user wants that")
    return found[0]


def _addresses_of(host: str, port: int) -> list[str]:
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def address_problem(address: str) -> str:
    """Return the reason why an IP address is not public; an empty text if it is public."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "no address"
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return address_problem(str(inner))
    if ip.is_loopback:
        return "this machine itself"
    if not ip.is_global or ip.is_multicast or ip.is_reserved:
        return "an address of a private or special network"
    return ""
