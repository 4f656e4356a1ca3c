"""How sure a finding is: how often one of its kind was right on targets kept apart, on which it was partly mended."""

from __future__ import annotations

from typing import Any

EARNED: dict[tuple[str, Any], tuple[int, int]] = {
    ("affine scores", False): (5, 5),
    ("affine scores", True): (5, 5),
    ("answering position", "all"): (10, 10),
    ("answering position", "first"): (10, 10),
    ("answering position", "last"): (150, 150),
    ("answering position", None): (5, 5),
    ("attention behind a network", False): (15, 15),
    ("attention behind a network", True): (10, 10),
    ("deterministic", False): (5, 5),
    ("deterministic", True): (35, 35),
    ("heads", None): (20, 20),
    ("mixing law", False): (10, 10),
    ("mixing law", True): (10, 10),
    ("norm before", "layer"): (10, 10),
    ("norm before", "none"): (10, 10),
    ("norm before", "rms"): (10, 10),
    ("norm", "none"): (10, 10),
    ("norm", "post"): (10, 10),
    ("norm", "pre"): (10, 10),
    ("norm", "rms"): (10, 10),
    ("one row", "affine"): (5, 5),
    ("one row", "bounded"): (10, 10),
    ("one row", "homogeneous"): (10, 10),
    ("one row", "linear"): (70, 70),
    ("one row", "normalised"): (5, 5),
    ("one row", "piecewise linear"): (10, 10),
    ("one row", "smooth"): (15, 15),
    ("order", False): (160, 160),
    ("order", True): (15, 15),
    ("other tokens", False): (10, 10),
    ("other tokens", True): (170, 170),
    ("precision", "float64"): (35, 35),
    ("rank", None): (5, 5),
    ("scores", "bounded"): (25, 25),
    ("scores", "free"): (10, 10),
    ("several heads", False): (15, 15),
    ("short tokens", False): (1, 1),
    ("short tokens", True): (10, 10),
    ("single head", False): (20, 20),
    ("token head", False): (10, 10),
    ("token head", True): (10, 10),
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
