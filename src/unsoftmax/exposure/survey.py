"""Knocking at every door of a server, once with the key and once without."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from unsoftmax.adapters.remote.transport import LOOPBACK, Transport, Unanswered, transport
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.exposure.doors import Door, doors

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
    if not allowed and (urlsplit(root).hostname or "") not in LOOPBACK:
        raise InvalidArgument(
            f"{root} is not on this machine: knocking at its doors is for servers you own or may test. If that is so, "
            "pass allowed=True (--i-may-test-this on the command line)."
        )
    carrier = transport(root, token_variable=token_variable, **{"retries": 0, "timeout": 10.0, **carrying})
    stranger = transport(root, token_variable="UNSOFTMAX_NO_KEY", **{"retries": 0, "timeout": 10.0, **carrying})
    keyed = bool(os.environ.get(token_variable))
    findings, server, knocked = [], "", 0
    for door in doors(model):
        found, name = _knock(carrier, door)
        knocked, server = knocked + 1, server or name
        if found.open and door.count:
            most, asked = _most(carrier, door, found.shown or 0)
            found, knocked = replace(found, shown=most), knocked + asked
        if keyed and found.open:
            again, _ = _knock(stranger, door)
            knocked += 1
            found = replace(found, without_key=again.open)
        elif found.open:
            found = replace(found, without_key=True)
        findings.append(found)
    return Exposure(root, server, tuple(findings), knocked)


def _most(carrier: Transport, door: Door, few: int) -> tuple[int, int]:
    """The most numbers that a door shows, up to `_MANY`, and the requests it took to know; `few` it showed already."""
    fewest, beyond, asked = few, _MANY + 1, 0
    tries = [_MANY, _USUAL, _USUAL + 1]
    while beyond - fewest > 1:
        many = tries.pop(0) if tries else (fewest + beyond) // 2
        if not fewest < many < beyond:
            continue
        found, _ = _knock(carrier, door.asking(many))
        asked += 1
        if not found.open:
            beyond = many
        elif (found.shown or 0) < many:
            return max(fewest, found.shown or 0), asked
        else:
            fewest = many
    return fewest, asked


def _counted(finding: Finding) -> str:
    if finding.shown == _MANY:
        return f"{_MANY} numbers and more"
    return f"{finding.shown} number{'' if finding.shown == 1 else 's'}"


def _knock(carrier: Transport, door: Door) -> tuple[Finding, str]:
    body = None if door.body is None else json.dumps(door.body).encode()
    kept = {"gives": door.gives, "learner": door.learner, "closes": door.closes}
    try:
        carrier.pace.wait(1)
        answer = carrier.send("GET" if body is None else "POST", door.path, body, {"Content-Type": "application/json"})
        said = answer.content.decode(errors="replace") if door.text else json.loads(answer.content)
        seen = door.read(said)
        told = carrier.without_token(" ".join(door.tells(said).split())[:80]) if door.tells else ""
    except Unanswered as error:
        if error.absent:
            raise error.told(carrier.url, 1, "check the url") from None
        return _closed(door, str(error)), ""
    except (OracleError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        reason = carrier.without_token(" ".join(str(error).split())[:200])
        if door.opened_by(error):
            return Finding(door.name, door.path, True, None, False, **kept, reason=reason), ""
        return _closed(door, reason), ""
    shown = None if isinstance(seen, bool) else int(seen)
    opened = bool(seen)
    name = answer.headers.get("server", "")
    return Finding(door.name, door.path, opened, shown if opened else None, False, **kept, reason=told), name


def _closed(door: Door, reason: str) -> Finding:
    return Finding(door.name, door.path, False, None, False, door.gives, door.learner, door.closes, reason)
