"""Access levels of an audit: what an attacker sees, from least to most, and what closes each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """An access level: `words` by which its rows are known, what it `shows`, what `closes` it."""

    slug: str
    words: tuple[str, ...]
    shows: str
    closes: str


RECORDED = "recorded traffic"
"""The access level whose bill is records, which cost a reader nothing."""

LABELS = "labels only"
"""The access level whose answers are one bit each."""

PROBABILITIES = "probabilities"
"""A classifier's answer: the sigmoid of the value."""

EMBEDS = "prompt embeds"
"""Vectors of the attacker's choice in place of tokens, log-probabilities or logits as answers."""

EXPLAINED = "answers with "
"""How access begins whose answers are explained: input gradients, or attention maps."""

_TOP = "top "
"""How access begins that shows the likeliest tokens alone."""

ONE_TOKEN = "sequences of 1 token"
"""The defence behind which no W enters an answer."""

QUERY_BUDGET = "query budget"
"""How a defence begins that counts the queries of a principal."""

EXPLANATIONS = ("input gradients", "attention maps")
"""Access levels that the target does not offer as it was audited: what explanations of its answers would give away."""

_DIGITS = "show labels, or set a query budget below the number of unknowns; fewer digits and noise delay at most"

LEVELS: tuple[Level, ...] = (
    Level("labels", (LABELS,), "the sign of each answer", "a query budget per principal"),
    Level("probabilities", (PROBABILITIES,), "the probability of a class", _DIGITS),
    Level("values", ("values", "vector answers", "token ids"), "numbers as the model computes them", _DIGITS),
    Level("top-tokens", (_TOP,), "the likeliest tokens and their log-probabilities", "no bias that chooses tokens"),
    Level(
        "log-probabilities", ("all log-probabilities",), "log-probabilities of every token", "show the likeliest few"
    ),
    Level("logits", ("all logits",), "logits of every token", "show the likeliest few, without a bias"),
    Level("prompt-embeds", (EMBEDS,), "answers to vectors of the attacker's choice", "switch prompt embeds off"),
    Level(
        "explanations",
        (*EXPLANATIONS, EXPLAINED),
        "answers with their explanations",
        "do not serve explanations to strangers",
    ),
    Level("logs", (RECORDED,), "recorded answers to others' traffic", "keep logs as carefully as weights"),
)
"""From least to most that an attacker has to be given; the last needs no query at all."""

_OTHER = Level("access", (), "answers", "put a defence in front of it, or do not expose it")


def top(count: int, how: str) -> str:
    """The access level that shows so many of the likeliest tokens, `how`."""
    return f"{_TOP}{count} {how}"


def shown(access: str) -> int | None:
    """How many of the likeliest tokens a level shows (`top`), None for one of another kind."""
    count = access.removeprefix(_TOP).split(" ", 1)[0]
    return int(count) if access.startswith(_TOP) and count.isdecimal() else None


def level_of(access: str) -> Level:
    """The level that a row of the ladder belongs to."""
    return next((level for level in LEVELS if access.startswith(level.words)), _OTHER)


def place_of(access: str) -> int:
    """Where a row stands among others; unknown ones come last."""
    level = level_of(access)
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)
