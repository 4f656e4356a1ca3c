"""Draw the figures of the concepts page from the models themselves: `python docs/figures/draw.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.special import expit

import unsoftmax as us
from unsoftmax.report.matrix import result, shade

FOLDER = Path(__file__).parent
BLUE, RED, GREY = "#2458a6", "#c0392b", "#777777"
STYLE = {"svg.hashsalt": "unsoftmax", "svg.fonttype": "none", "font.size": 11, "font.family": "sans-serif"}


def save(figure: Figure, name: str, folder: Path) -> None:
    with rc_context(STYLE):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


def plain(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def two_tokens(folder: Path) -> None:
    """Left: the two tokens and what attention makes of them. Right: the answer against the score, and its inverse."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.2])
    b, a = np.array([0.9, 0.25]), np.array([0.45, 1.3])
    share = float(expit(0.8))
    mixed = b + share * a
    for start, vector, colour, name in ((0 * b, b, GREY, "b"), (0 * b, a + b, GREY, "a + b")):
        left.annotate("", start + vector, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.6})
        left.annotate(name, start + vector, (6, 4), textcoords="offset points", color=colour)
    left.plot(*np.array([b, a + b]).T, color=BLUE, lw=1, ls=":")
    left.plot(*mixed, "o", color=RED, ms=8)
    left.annotate("attention returns\nb + \u03c3(a\u2032Wb) a", mixed, (14, -14), textcoords="offset points", color=RED)
    left.set(xlim=(-0.1, 2.9), ylim=(-0.1, 1.9), xticks=[], yticks=[], aspect="equal")
    left.spines[["top", "right", "bottom", "left"]].set_visible(False)
    left.set_title("the sequence [a + b ; b]")
    t = np.linspace(-6, 6, 300)
    right.plot(t, expit(t), color=BLUE, lw=2)
    right.plot([0.8, 0.8, -6], [0, share, share], color=RED, lw=1.2, ls="--")
    right.plot(0.8, share, "o", color=RED)
    right.annotate("answer", (-5.8, share), (0, 5), textcoords="offset points", color=RED)
    right.annotate("one entry of W", (0.8, 0), (6, 6), textcoords="offset points", color=RED)
    right.set(yticks=[0, 1], yticklabels=["b\u00b7v", "(a+b)\u00b7v"], ylim=(-0.03, 1.05))
    plain(right, "score gap t = a\u2032Wb", "answer y")
    right.set_title("y = b\u00b7v + \u03c3(t) a\u00b7v: invert the sigmoid")
    save(figure, "two-tokens", folder)


def repetition(folder: Path) -> None:
    """Share of a + b against its score, for one, 15 and 255 copies of b: the same curve, moved by log of the ratio."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    head = us.models.SingleHead(np.array([[1.0]]), np.array([1.0]))
    t = np.linspace(-4, 12, 200)
    tokens = np.stack([t + 1.0, np.ones_like(t)], axis=1)[:, :, None]
    for copies, colour in ((1, BLUE), (15, RED), (255, GREY)):
        share = (head(tokens, np.tile([1, copies], (len(t), 1))) - 1.0) / np.where(np.abs(t) < 1e-9, 1e-9, t)
        axes.plot(t, share, color=colour, lw=2, label=f"{copies} cop{'y' if copies == 1 else 'ies'} of b")
        axes.axvline(np.log(copies), color=colour, lw=0.8, ls=":")
    axes.legend(frameon=False)
    plain(axes, "t = a\u2032Wb", "attention on a + b")
    axes.set_title("repeating b moves the readable range: \u03c3(t \u2212 log n)")
    save(figure, "repetition", folder)


def saturation(folder: Path) -> None:
    """f of two tokens on a half circle of radius R: three heads switch, each at its own angle, sharper as R grows."""
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axes = figure.subplots()
    heads = us.models.MultiHead.random(4, heads=3, norm=1.0, seed=6)
    rng = np.random.default_rng(2)
    b, u1, u2 = rng.standard_normal((3, 4))
    angle = np.linspace(0, np.pi, 1500)
    z = np.cos(angle)[:, None] * u1 + np.sin(angle)[:, None] * u2
    for radius, colour in ((2, GREY), (10, BLUE), (1000, RED)):
        tokens = np.stack([radius * z + b, np.tile(b, (len(z), 1))], axis=1)
        axes.plot(
            angle, (heads(tokens) - b @ heads.v.sum(axis=0)) / radius, color=colour, lw=1.8, label=f"R = {radius}"
        )
    for w in heads.W @ b:
        axes.axvline(np.mod(np.arctan2(-(w @ u1), w @ u2), np.pi), color="black", lw=0.8, ls=":")
    axes.legend(frameon=False)
    plain(axes, "angle of z", "(f([Rz + b ; b]) \u2212 b\u00b7V) / R")
    axes.set_title("far out every head is on or off: one jump per head, where z\u2032W\u2095b = 0")
    save(figure, "saturation", folder)


def noise(folder: Path) -> None:
    """What an error of the answer becomes in the logit."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    t = np.linspace(-9, 9, 300)
    axes.semilogy(t, 1 / (expit(t) * expit(-t)), color=BLUE, lw=2)
    axes.axvspan(-1, 1, color=RED, alpha=0.12, lw=0)
    axes.annotate("pilot keeps probes here", (0, 300), ha="center", color=RED)
    plain(axes, "t = a\u2032Wb", "error of t / (error of y / |a\u00b7v|)")
    axes.set_title("1 / (\u03b1(1 \u2212 \u03b1)): keep logits small, and a\u00b7v large")
    save(figure, "noise", folder)


COLOURS = {"exact": RED, "close": "#d68910", "rough": GREY, "proved": "#1e8449", "held": "#2e86c1"}
SHOWN = {
    "no defence": "none",
    "2 decimals": "rounding to 2 decimals",
    "noise 0.001": "random noise of deviation 0.001",
    "short tokens": "token norm at most 1",
    "1 token": "sequences of 1 token",
    "half the\nqueries": "query budget of half the unknowns",
}


def ladder(folder: Path) -> None:
    """What an audit finds: rows are what an attacker sees, columns what the owner puts in front of it."""
    head = us.models.SingleHead.random(12, norm=2.0, seed=0)
    audit = us.audit(us.oracle(head), head)
    cells = {(cell.access, cell.defence): cell for cell in audit.cells}
    rows = ("labels only", "probabilities", "values", "attention maps", "recorded traffic")
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots()
    for y, access in enumerate(rows):
        for x, defence in enumerate(SHOWN.values()):
            cell = cells.get((access, defence))
            if cell is None:
                continue
            axes.add_patch(Rectangle((x + 0.03, y + 0.05), 0.94, 0.9, color=COLOURS[shade(audit, cell)], lw=0))
            unit = "records" if access == "recorded traffic" else "queries"
            spent = f"{cell.queries:,} {unit}" if cell.queries else "no attack begins"
            words = f"{result(audit, cell)}\n{spent}"
            axes.text(x + 0.5, y + 0.5, words, ha="center", va="center", color="white", fontsize=10)
    axes.set(xlim=(0, len(SHOWN)), ylim=(len(rows), 0))
    axes.set_xticks([x + 0.5 for x in range(len(SHOWN))], list(SHOWN))
    axes.set_yticks([y + 0.5 for y in range(len(rows))], rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("A softmax head of 156 weights: what each access gives away behind each defence")
    save(figure, "ladder", folder)


FIGURES: tuple[Callable[[Path], None], ...] = (two_tokens, repetition, saturation, noise, ladder)


def main(folder: Path = FOLDER) -> None:
    for draw in FIGURES:
        draw(folder)


if __name__ == "__main__":
    main()
