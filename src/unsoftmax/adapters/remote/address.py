"""Addresses of servers: what one may be, and which are on this machine."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from unsoftmax.errors import InvalidArgument

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts to which a token may travel in the open: this machine."""


def address(url: str) -> SplitResult:
    """The parts of a server's address, which must be one and hold nothing secret."""
    wrong = InvalidArgument(f"`url` must be http://host:port or https://host:port (got {url!r}).")
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        _ = parts.port  # reading it checks it
    except ValueError as error:
        raise wrong from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise wrong
    if parts.username or parts.password:
        raise InvalidArgument("`url` must not hold a password: ledgers and reports name it; use token_variable=.")
    if parts.query or parts.fragment:
        raise InvalidArgument("`url` must end with its path: what follows ? or # is not sent, and may be a key.")
    return parts
