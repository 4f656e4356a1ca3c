"""Knocking at every door of a server, once with the key and once without."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from unsoftmax.adapters.remote.address import LOOPBACK, address
from unsoftmax.adapters.remote.transport import Transport, Unanswered, transport
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.exposure.doors import Door, changed, doors

_MANY = 1000
"""Numbers asked for at once: no service shows so many by default, and one that does shows all."""

_USUAL = 20
"""Log-probabilities that services show at most unless told otherwise."""


@dataclass(frozen=True)
class Finding:
    """A door: open or not, `shown` numbers at most behind it, and what it means for its owner.

    reason  why it is closed, or what the server said that is worth repeating.
    """

    name: str
    path: str
    open: bool
    shown: int | None
    without_key: bool
    gives: str
    learner: str
    closes: str
    reason: str = ""


@dataclass(frozen=True)
class Exposure:
    """What a server shows to whoever knocks; `requests` were sent for it."""

    url: str
    server: str
    findings: tuple[Finding, ...]
    requests: int

    @property
    def open(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.open)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "findings": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        head = f"{self.url}: {len(self.open)} of {len(self.findings)} doors are open ({self.requests} requests)"
        lines = [head, *([f"  it calls itself {self.server}"] if self.server else [])]
        for finding in self.open:
            shown = f", {_counted(finding)}" if finding.shown else ""
            key = ", without a key" if finding.without_key else ""
            said = f" ({finding.reason})" if finding.reason else ""
            lines.append(f"  {finding.name} (/{finding.path}{shown}{key}): gives {finding.gives}{said}")
            lines.append(f"      learner: {finding.learner}; closed by: {finding.closes}")
        closed = ", ".join(finding.name for finding in self.findings if not finding.open)
        return "\n".join([*lines, f"  closed or absent: {closed or 'none'}"])


def exposure(
    url: str, model: str = "model", *, allowed: bool = False, token_variable: str = "OPENAI_API_KEY", **carrying: Any
) -> Exposure:
    """Say which doors of a server are open: one or two read-only requests each, one token generated at most.

    How many log-probabilities are shown is found by asking for fewer until an answer comes, a dozen requests at most.

    Only for servers you own or may test: addresses other than loopback need allowed=True. `url` is the server's root
    ("http://host:8000"); a key is read from `token_variable`, and every door is tried without it as well.
    """
    root = url.rstrip("/").removesuffix("/v1")
    if not allowed and address(root).hostname not in LOOPBACK:
        raise InvalidArgument(
            f"{root} is not on this machine: knocking at its doors is for servers you own or may test. If that is so, "
            "pass allowed=True (--i-may-test-this on the command line)."
        )
    how = {"retries": 0, "timeout": 10.0, **carrying}
    guest = Visitor(transport(root, token_variable=token_variable, **how))
    stranger = Visitor(transport(root, token_variable="UNSOFTMAX_NO_KEY", **how))
    keyed = bool(os.environ.get(token_variable))
    findings = []
    for door in doors(model):
        found = guest.knock(door)
        if found.open and door.count:
            found = replace(found, shown=guest.most(door, found.shown or 0))
        if found.open:
            found = replace(found, without_key=not keyed or stranger.knock(door).open)
        findings.append(found)
    return Exposure(root, guest.server, tuple(findings), guest.knocks + stranger.knocks)


@dataclass
class Visitor:
    """Knocks at doors by one transport; counts, and notes what the server calls itself."""

    carrier: Transport
    knocks: int = 0
    server: str = ""

    def knock(self, door: Door) -> Finding:
        """What one request shows of a door."""
        body = None if door.body is None else json.dumps(door.body).encode()
        method, headers = "GET" if body is None else "POST", {"Content-Type": "application/json"}
        self.knocks += 1
        try:
            self.carrier.pace.wait(1)
            answer = self.carrier.send(method, door.path, body, headers)
            said = answer.content.decode(errors="replace") if door.text else json.loads(answer.content)
            seen = door.read(said)
            if seen and door.changes:
                self.knocks += 1
                self.carrier.pace.wait(1)
                plain = self.carrier.send(method, door.path, json.dumps(door.without).encode(), headers)
                seen = changed(said, json.loads(plain.content))
            told = " ".join(door.tells(said).split())[:80] if door.tells else ""
        except Unanswered as error:
            if error.absent:
                raise error.told(self.carrier.url, 1, "check the url") from None
            # A server that fails on what a field holds has read it.
            return self._refused(door, 500 if error.http_status == 500 else None, str(error))
        except (OracleError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            return self._refused(door, getattr(error, "http_status", None), str(error))
        self.server = self.server or answer.headers.get("server", "")
        shown = None if isinstance(seen, bool) or not seen else int(seen)
        return _finding(door, bool(seen), self.carrier.without_token(told), shown)

    def _refused(self, door: Door, status: int | None, reason: str) -> Finding:
        """A closed door; an open one if the same request is answered without what it adds."""
        opened = False
        if door.read_and_refused(status, reason):
            plain = replace(door, body=door.without, adds="", read=lambda said: bool(said["choices"]))
            opened = self.knock(plain).open
        return _finding(door, opened, self.carrier.without_token(" ".join(reason.split())[:200]))

    def most(self, door: Door, few: int) -> int:
        """The most numbers that a door shows, up to `_MANY`; `few` it showed already."""
        fewest, beyond = few, _MANY + 1
        tries = [_MANY, _USUAL, _USUAL + 1]
        while beyond - fewest > 1:
            many = tries.pop(0) if tries else (fewest + beyond) // 2
            if not fewest < many < beyond:
                continue
            found = self.knock(door.asking(many))
            if not found.open:
                beyond = many
            elif (found.shown or 0) < many:
                return max(fewest, found.shown or 0)
            else:
                fewest = many
        return fewest


def _finding(door: Door, opened: bool, reason: str, shown: int | None = None) -> Finding:
    return Finding(
        door.name,
        door.path,
        opened,
        shown,
        False,
        gives=door.gives,
        learner=door.learner,
        closes=door.closes,
        reason=reason,
    )


def _counted(finding: Finding) -> str:
    if finding.shown == _MANY:
        return f"{_MANY} numbers and more"
    return f"{finding.shown} number{'' if finding.shown == 1 else 's'}"
