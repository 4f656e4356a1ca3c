"""The monitor on real targets: unchanged ones computed by other kernels for ten thousand calls, and how soon a change
is seen.

All near ties of a run are drawn at once, seven for each call, and answered by float32 kernels that the calibration has
not seen; the eighth question is a fresh single token or, in every other call, one of forty long sequences of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from benchmarks.compare_kernels import ALPHA
from unsoftmax.comparing import designs, statistics
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.detection import plan
from unsoftmax.comparing.monitor import Held, State, log_evidence
from unsoftmax.comparing.noise import Group, group
from unsoftmax.comparing.references import reference_of

_DIM = 8
_LONG = 5
"""Draws of long sequences of a run: two of each of four lengths."""


def rows(large: bool) -> Iterator[Row]:
    runs, calls = (300, 10_000) if large else (6, 1_000)
    alarms = sum(false_alarms(seed, calls) for seed in range(90_000, 90_000 + runs // 3))
    yield Row("monitor, false alarms", float(alarms), 0.0, "runs that alarmed", {"runs": runs, "calls": calls})
    for signal, most in ((4.0, 1), (2.0, 4)):
        taken = sorted(delay(seed, signal) for seed in range(91_000, 91_000 + (40 if large else 4)))
        figures = {"signal over noise": signal, "calls": taken}
        yield Row(f"monitor, delay at {signal:g} x noise", taken[len(taken) // 2] / most, 1.0, "median / bar", figures)
    late = np.array([missed(seed, 2.0) for seed in range(96_000, 96_000 + (400 if large else 20))])
    figures = dict(zip(("monitor", "size known", "one test"), late.sum(axis=0).tolist(), strict=True))
    yield Row("monitor, 2 x noise missed by 4 calls", float(late[:, 0].mean()), None, "part of the changes", figures)


def false_alarms(seed: int, calls: int) -> int:
    """Alarms of three kernels of one reference, each watched for so many calls."""
    model = us.models.SingleHead.random(_DIM, norm=2.0, seed=seed).astype("float32")
    spec = us.oracle(model, dtype="float32").spec
    known = reference_of(model, spec)
    made = plan(known, spec, "float32", 1e-3, None, 0, whole=False)
    asked, noise, rng = made.asked, made.noise, np.random.default_rng([seed, 1])
    ties = group(
        "ties",
        designs.near_ties(known, asked, (COMPARING.queries_of_a_call - 1) * calls, made.norm, rng),
        noise,
        made.constant,
        rng,
    )
    X = designs.singles(asked, calls, made.usual, rng)
    one = group("one", X, noise, max(made.constant, noise.constant(lambda: X[:64], rng)), rng)
    bands = [X[:1] for _ in range(_LONG) for X in designs.longer(known, asked, made.usual, rng)]
    long = [group("long", X, noise, max(made.constant, noise.constant(lambda X=X: X, rng)), rng) for X in bands]  # type: ignore[misc]
    return sum(_alarms(kernel, ties, one, long, calls, rng) for kernel in _kernels(model))


def _alarms(kernel: Callable[[Any], Any], ties: Group, one: Group, long: list[Group], calls: int, rng: Any) -> bool:
    energies = np.empty((calls, COMPARING.queries_of_a_call))
    energies[:, :-1] = statistics.energy(ties.z(kernel(ties.X))).reshape(calls, -1)
    energies[:, -1] = statistics.energy(one.z(kernel(one.X)))
    drawn = np.array([float(statistics.energy(item.z(kernel(item.X)))[0]) for item in long])
    energies[::2, -1] = rng.choice(drawn, len(energies[::2]))
    held = Held(State.new(2 * len(statistics.log_shares())))
    for call in energies:
        held.add(np.concatenate([statistics.log_bets(call[:-1]), statistics.log_bets(call[-1:])]))
        if log_evidence(held.value.log_wealth) >= math.log(1e3):
            return True
    return False


def _kernels(model: Any) -> Iterator[Callable[[Any], Any]]:
    W, v = np.asarray(model.W), np.asarray(model.v)
    order = np.random.default_rng(0).permutation(len(W))
    permuted = us.models.SingleHead(W[order][:, order], v[order])

    def keys_first(X: Any) -> Any:
        x = X.astype(np.float32)
        s = np.einsum("bnd,bd->bn", x @ W, x[:, -1])
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return np.asarray((e * (x @ v)).sum(axis=1) / e.sum(axis=1), dtype=np.float64)

    def backwards(X: Any) -> Any:
        x = X.astype(np.float32)[:, ::-1]
        u = np.cumsum((x[:, 0, None, :] * W)[..., ::-1], axis=-1, dtype=np.float32)[..., -1]
        s = np.cumsum((x * u[:, None])[..., ::-1], axis=-1, dtype=np.float32)[..., -1]
        e = np.exp(s - s.max(axis=1, keepdims=True))
        mixed = np.cumsum(e[..., None] * x, axis=1, dtype=np.float32)[:, -1] / e.sum(axis=1, keepdims=True)
        return np.cumsum((mixed * v)[..., ::-1], axis=-1, dtype=np.float32)[..., -1].astype(np.float64)

    yield from (keys_first, backwards)
    yield lambda X: np.asarray(permuted(X.astype(np.float32)[:, :, order]), dtype=np.float64)


def changed(seed: int, signal: float) -> tuple[us.models.SingleHead, us.models.SingleHead]:
    """A head, and the same with a dense change whose signal in near ties is so many times the noise."""
    model = us.models.SingleHead.random(16, norm=2.0, seed=seed)
    spec = us.oracle(model).spec
    ties = plan(reference_of(model, spec), spec, "float64", 1e-3, None, 0, whole=False).groups[0]
    change = np.random.default_rng([seed, 2]).standard_normal(model.W.shape)
    change *= 1e-12 * np.linalg.norm(model.W) / np.linalg.norm(change)
    wide = us.models.SingleHead(np.longdouble(1) * model.W + change, np.longdouble(1) * model.v)
    seen = float(np.sqrt(np.mean(statistics.energy(ties.z(np.asarray(wide(ties.X)))))))
    return model, us.models.SingleHead(model.W + change * (signal / seen), model.v)


def delay(seed: int, signal: float, most: int = 40) -> int:
    """Calls of `us.Monitor` until such a change is seen."""
    model, moved = changed(seed, signal)
    watch = us.Monitor(model)
    return next((t for t in range(1, most + 1) if watch.step(us.oracle(moved)).alarm), most + 1)


def missed(seed: int, signal: float, calls: int = 4) -> tuple[bool, bool, bool]:
    """Whether so many calls miss the change: the monitor, a bet that knows its size, one test of all near ties.

    The bet stakes everything from the first call on and may look after every call; the test looks once, at the end.
    """
    model, moved = changed(seed, signal)
    spec = us.oracle(model).spec
    known = reference_of(model, spec)
    made, rng = plan(known, spec, "float64", ALPHA, None, 0, whole=False), np.random.default_rng([seed, 4])
    X = designs.near_ties(known, made.asked, (COMPARING.queries_of_a_call - 1) * calls, made.norm, rng)
    energies = statistics.energy(group("ties", X, made.noise, made.constant, rng).z(moved(X)))
    share = signal**2 / (1 + signal**2)
    gained = 0.5 * (share * energies - math.log1p(signal**2)).reshape(calls, -1).sum(axis=1)
    by_bet = bool(np.cumsum(gained).max() < -math.log(ALPHA))
    return delay(seed, signal, calls) > calls, by_bet, statistics.tail(energies) > ALPHA
