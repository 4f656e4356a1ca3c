"""How sure a finding is: how often one of its kind was right on targets kept apart, on which it was partly mended."""

from __future__ import annotations

from typing import Any

EARNED: dict[tuple[str, Any], tuple[int, int]] = {
    ("affine scores", False): (5, 5),
    ("affine scores", True): (5, 5),
    ("answering position", "all"): (10, 10),
    ("answering position", "first"): (10, 10),
    ("answering position", "last"): (160, 160),
    ("answering position", None): (5, 5),
    ("attention behind a network", False): (10, 10),
    ("attention behind a network", True): (10, 10),
    ("deterministic", False): (5, 5),
    ("deterministic", True): (35, 35),
    ("frozen contexts", True): (25, 25),
    ("heads", None): (59, 59),
    ("kernel", "1 + elu"): (10, 10),
    ("kernel", "none"): (0, 2),
    ("kernel", "relu^2"): (5, 5),
    ("kernel", "sigmoid"): (10, 10),
    ("kernel", "softplus"): (10, 10),
    ("kernel", None): (18, 18),
    ("key groups", None): (25, 25),
    ("mixing law", False): (10, 10),
    ("mixing law", True): (10, 10),
    ("networks", False): (10, 10),
    ("networks", True): (15, 15),
    ("norm before", "layer"): (10, 10),
    ("norm before", "none"): (10, 10),
    ("norm before", "rms"): (10, 10),
    ("norm last", False): (10, 10),
    ("norm", "none"): (15, 15),
    ("norm", "post"): (10, 10),
    ("norm", "pre"): (10, 10),
    ("norm", "rms"): (45, 45),
    ("normalised", False): (25, 25),
    ("normalised", True): (28, 28),
    ("one row", "affine"): (5, 5),
    ("one row", "bounded"): (10, 10),
    ("one row", "homogeneous"): (10, 10),
    ("one row", "linear"): (70, 70),
    ("one row", "normalised"): (5, 5),
    ("one row", "piecewise linear"): (10, 10),
    ("one row", "smooth"): (15, 15),
    ("order", False): (170, 170),
    ("order", True): (55, 55),
    ("other tokens", False): (10, 10),
    ("other tokens", True): (180, 180),
    ("positions", "alibi"): (5, 5),
    ("positions", "rotary with a query bias"): (5, 5),
    ("positions", "rotary"): (30, 30),
    ("precision", "float64"): (35, 35),
    ("rank", None): (5, 5),
    ("score law", "capped"): (5, 5),
    ("score law", "linear"): (30, 30),
    ("score law", "normed"): (4, 4),
    ("scores", "bounded"): (14, 14),
    ("scores", "free"): (10, 10),
    ("several heads", False): (15, 15),
    ("short tokens", True): (10, 10),
    ("single head", False): (20, 20),
    ("sinks", False): (35, 35),
    ("sinks", True): (5, 5),
    ("token head", False): (10, 10),
    ("token head", True): (10, 10),
    ("value groups", None): (39, 39),
    ("window", None): (40, 40),
}
"""(finding, value) -> (right, tried), counted by `tests/diagnosis/test_confidence.py` on `tests/diagnosis/held_out.py`;
a value of None stands for all others of the finding."""

_CERTAIN = frozenset(
    {"outputs", "answers", "access", "link", "padding", "limit on token norm", "limit on sequence length"}
)
"""Findings that repeat what was declared, or state a figure as it was measured."""


def earned(name: str, value: Any) -> float:
    """Laplace's rule: (right + 1) / (tried + 2), so that a finding never tried is worth a half."""
    if name in _CERTAIN:
        return 1.0
    key = (name, value if isinstance(value, (str, bool)) else None)
    right, tried = EARNED.get(key, EARNED.get((name, None), (0, 0)))
    return (right + 1) / (tried + 2)
