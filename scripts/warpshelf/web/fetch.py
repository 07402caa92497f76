"""One answer from the web, within limits of size, time, hops and reach."""

from __future__ import annotations

import ipaddress
import socket
import time
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

import httpx

from warpshelf.core.findings import printable_line

LARGEST = 512 * 1024  # bytes of an answer, unpacked
LONGEST = 20.0  # seconds for an answer with all its hops
HOPS = 5
AGENT = "warpshelf/0.1 (+https://github.com/warpshelf/warpshelf)"
PERMANENT = (301, 308)
MOVED = (301, 302, 303, 307, 308)
PUBLIC_PORTS = (None, 80, 443)
TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # NAT64: the last 32 bits are an IPv4 address
PHRASES = {status.value: f" {status.phrase}" for status in HTTPStatus}


class Unreachable(Exception):
    """An address gave no readable answer. `str()` is the reason, `status` the HTTP status."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(printable_line(reason, 300))


@dataclass(frozen=True)
class Answer:
    """The body of a 200. `url` is where permanent moves lead; `whole` is false for a cut one."""

    url: str
    type: str
    charset: str | None
    data: bytes
    whole: bool


def create_client() -> httpx.Client:
    """A client for `fetch_url`: short timeouts, no redirects of its own, our user agent."""
    return httpx.Client(
        timeout=httpx.Timeout(10.0, connect=5.0),
        limits=httpx.Limits(max_connections=4),
        headers={"User-Agent": AGENT},
        follow_redirects=False,
    )


def fetch_url(
    url: str,
    client: httpx.Client,
    *,
    accept: str = "*/*",
    agent: str = AGENT,
    private: bool = False,
    largest: int = LARGEST,
) -> Answer:
    """Ask for `url`, following at most five redirects; the body is cut at `largest` bytes.

    Unless `private`, only http and https on their own ports, and only hosts whose addresses are all
    public: somebody else may have chosen the URL. The address is checked before the request and
    again on the connection, since a name may resolve differently the next time. `Unreachable` if a
    check refuses it, the network or the server fails, or the status is not 200.
    """
    headers = {"Accept": accept, "Accept-Encoding": "gzip", "User-Agent": agent}
    until = time.monotonic() + LONGEST
    lasting, kept = url, True  # the address after permanent moves only
    for _ in range(HOPS + 1):
        host = _host_name(url)
        direct = not private and _check_public(url, client)
        try:
            with client.stream("GET", url, headers=headers, follow_redirects=False) as response:
                stream = response.extensions.get("network_stream")
                peer = stream.get_extra_info("server_addr") if stream is not None else None
                if direct and peer:
                    _refuse_address(str(peer[0]), host)
                status = response.status_code
                if status in MOVED and "location" in response.headers:
                    url = urljoin(url, response.headers["location"])
                    kept = kept and status in PERMANENT
                    lasting = url if kept else lasting
                    continue
                if status != 200:
                    raise Unreachable(f"{host} answers {status}{PHRASES.get(status, '')}", status)
                data = bytearray()
                for chunk in _unpack_chunks(response, largest, host):
                    data += chunk
                    if len(data) > largest:
                        break
                    if time.monotonic() > until:
                        raise Unreachable(f"{host} did not answer in time")
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                whole, body = len(data) <= largest, bytes(data[:largest])
                return Answer(lasting, kind, response.charset_encoding, body, whole)
        except httpx.TimeoutException:
            raise Unreachable(f"{host} did not answer in time") from None
        except httpx.TooManyRedirects:
            break
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            what = str(error) or type(error).__name__
            raise Unreachable(f"{host} cannot be reached ({what})") from None
        except (ValueError, OSError, zlib.error) as error:
            what = str(error) or type(error).__name__
            raise Unreachable(f"{host} cannot be read ({what})") from None
    raise Unreachable(f"{_host_name(url)} redirects more than {HOPS} times")


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _check_public(url: str, client: httpx.Client) -> bool:
    """Refuse what is not on the public web; True where we ourselves resolve the host's name."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise Unreachable(f"{url} cannot be read ({error})") from None
    if parts.scheme not in ("http", "https") or port not in PUBLIC_PORTS or not host:
        raise Unreachable(f"{url} is not a public http or https address")
    if parts.username is not None or parts.password is not None:
        raise Unreachable(f"the address of {host} holds a user name or password")
    try:
        addresses = [str(ipaddress.ip_address(host))]
    except ValueError:
        if _uses_proxy(parts.scheme, host, client):
            return False
        addresses = _resolve_host(host, 443 if parts.scheme == "https" else 80)
    for address in addresses:
        _refuse_address(address, host)
    return True


def _uses_proxy(scheme: str, host: str, client: httpx.Client) -> bool:
    proxies = urllib.request.getproxies() if client.trust_env else {}
    named = proxies.get(scheme) or proxies.get("all")
    return bool(named) and not urllib.request.proxy_bypass(host)


def _resolve_host(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreachable(f"{host} cannot be found; check the address and the network") from None
    return [str(entry[4][0]) for entry in found]


def _refuse_address(address: str, host: str) -> None:
    number = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(number, ipaddress.IPv6Address):
        inner = number.ipv4_mapped or number.sixtofour or (number.teredo or (None, None))[1]
        if number in TRANSLATED:
            inner = ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
        number = inner or number
    if not number.is_global or number.is_multicast or number.is_reserved:
        raise Unreachable(f"{host} is not on the public internet")


def _unpack_chunks(response: httpx.Response, largest: int, host: str) -> Iterator[bytes]:
    """The chunks of the body, unpacked by ourselves: a small answer may unpack to gigabytes."""
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed in ("", "identity"):
        yield from response.iter_raw()
    elif packed in ("gzip", "x-gzip"):
        unpacker = zlib.decompressobj(31)
        for chunk in response.iter_raw():
            yield unpacker.decompress(chunk, largest + 1)
            if unpacker.unconsumed_tail:  # more than the limit: what follows is not asked for
                return
    else:
        raise Unreachable(f"{host} answers compressed as {packed}, which was not asked for")
