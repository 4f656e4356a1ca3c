"""Targets inside and outside the classes, by name: (name, family, make an oracle)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import erf, expit

import unsoftmax as us
from unsoftmax.oracles import Cast, Perturbed, Rounded

Target = tuple[str, str, Callable[[], Any]]


def named(fn: Callable[..., Any], dim: int, **options: Any) -> Any:
    return us.oracle(fn, dim, **options)


def inside() -> Iterator[Target]:
    """Targets of every class and trait."""
    m = us.models
    for dim in (4, 8, 16, 32):
        for norm in (0.3, 3.0, 30.0):
            head = m.SingleHead.random(dim, norm=norm, sparsity=0.5 if norm == 3.0 else 0.0, seed=dim)
            yield f"single d={dim} norm={norm}", "single head", lambda h=head: us.oracle(h)
    for dim, rank in ((24, 2), (32, 4), (48, 3), (64, 8), (96, 6)):
        low = m.SingleHead.random(dim, rank=rank, norm=3.0, seed=dim)
        yield f"low rank d={dim} r={rank}", "low-rank head", lambda h=low: us.oracle(h)
    for dim, heads in ((8, 2), (8, 3), (16, 2), (16, 3), (16, 4), (32, 2), (32, 4), (32, 6), (64, 8)):
        many = m.MultiHead.random(dim, heads, norm=3.0, seed=dim + heads)
        yield f"multi-head d={dim} H={heads}", "multi-head attention", lambda h=many: us.oracle(h)
    for dim in (6, 12, 24):
        head = m.SingleHead.random(dim, norm=3.0, seed=dim)
        c = np.random.default_rng(dim).standard_normal(dim)
        yield f"affine scores d={dim}", "affine head", lambda h=head, c=c: us.oracle(m.SingleHead(h.W, h.v, c=c))
        yield (
            f"affine scores and constant d={dim}",
            "affine head",
            lambda h=head, c=c: us.oracle(m.SingleHead(h.W, h.v, c=c, constant=0.7)),
        )
        yield f"constant term d={dim}", "affine head", lambda h=head: us.oracle(m.SingleHead(h.W, h.v, constant=-0.4))
    for dim, width in ((6, 12), (8, 32), (16, 32)):
        for bias in (False, True):
            for residual in (False, True):
                tf = m.Transformer.random(dim, width, norm=2.0, bias=bias, residual=residual, seed=dim)
                words = f"transformer d={dim} bias={bias} residual={residual}"
                yield words, "transformer", lambda h=tf: us.oracle(h)
    for dim in (6, 12):
        for kind in ("gelu", "swiglu"):
            yield (
                f"{kind} behind d={dim}",
                "attention behind a network",
                lambda dim=dim, kind=kind: named(network_behind(dim, kind), dim),
            )
    for dim, width in ((6, 8), (12, 24)):
        for bias in (False, True):
            net = m.ReluNetwork.random(dim, width, bias=bias, seed=dim)
            yield f"ReLU network d={dim} bias={bias}", "ReLU network", lambda h=net: us.oracle(h)
    head = m.SingleHead.random(16, norm=3.0, seed=4)
    yield "float32 head", "single head", lambda: us.oracle(head.astype("float32"))
    yield "float32 cast", "single head", lambda: Cast(us.oracle(head), "float32")
    yield "rounded to 6", "single head", lambda: us.oracle(lambda X: np.round(head(X), 6), 16)
    yield "rounded to 4", "single head", lambda: us.oracle(lambda X: np.round(head(X), 4), 16)
    yield "declared rounding", "single head", lambda: Rounded(us.oracle(head), decimals=5)
    yield "deterministic noise", "single head", lambda: Perturbed(us.oracle(head), 1e-5)
    yield "labels", "head behind labels", lambda: us.oracle(head, kind="membership")
    yield "labels d=6", "head behind labels", lambda: us.oracle(m.SingleHead.random(6, seed=1), kind="membership")


def layers() -> Iterator[Target]:
    """Vector answers: plain layers, with a residual, with a norm before or after."""
    for dim, heads in ((16, 2), (32, 4), (64, 4)):
        for norm in (None, "pre", "post"):
            for residual in (False, True) if norm is None else (True,):
                words = f"layer d={dim} H={heads} norm={norm} residual={residual}"
                yield words, "attention layer", lambda a=(dim, heads, norm, residual): us.oracle(layer(*a))
    for norm in ("pre", "post"):
        short = layer(32, 4, norm, True).astype("float32")
        yield f"layer in float32 norm={norm}", "attention layer", lambda m=short: us.oracle(m, dtype="float32")


def layer(dim: int, heads: int, norm: str | None, residual: bool) -> Any:
    return us.models.AttentionLayer.random(dim, heads, norm=norm, residual=residual, seed=dim)


def outside() -> Iterator[Target]:
    """Targets in no class."""
    for seed, dim in ((0, 6), (1, 8), (2, 12)):
        for name, make in FOREIGN.items():
            family = "kernel head" if name in ("sigmoid attention", "linear attention") else "outside"
            yield f"{name} d={dim}", family, lambda m=make, s=seed, d=dim: named(m(d, s), d)


def foreign_layers() -> Iterator[Target]:
    """Vector answers in no class: the foreign scalar targets, one for each of several value vectors."""
    for seed, dim in ((0, 12), (1, 16)):
        for name, make in FOREIGN.items():
            yield f"{name} layer d={dim}", "outside", lambda m=make, s=seed, d=dim: stacked(m, d, s)


def stacked(make: Callable[[int, int], Callable[..., Any]], dim: int, seed: int) -> Any:
    parts = [make(dim, seed + 10 * i) for i in range(dim)]
    return us.oracle(lambda X: np.stack([part(X) for part in parts], axis=1), dim, outputs=dim)


def parameters(dim: int, seed: int) -> tuple[Any, Any]:
    head = us.models.SingleHead.random(dim, norm=3.0, seed=seed)
    return head.W, head.v


def scores(X: Any, W: Any) -> Any:
    return np.einsum("bnd,de,be->bn", X, W, X[:, -1])


def softmax(s: Any) -> Any:
    a = np.exp(s - s.max(axis=-1, keepdims=True))
    return a / a.sum(axis=-1, keepdims=True)


def network_behind(dim: int, kind: str) -> Callable[..., Any]:
    rng = np.random.default_rng(dim)
    W, _ = parameters(dim, dim)
    A, B, w = rng.standard_normal((dim, 16)), rng.standard_normal((dim, 16)), rng.standard_normal(16)

    def target(X: Any) -> Any:
        z = np.einsum("bn,bnd->bd", softmax(scores(X, W)), X)
        if kind == "gelu":
            u = z @ A + 0.3
            return (u * (1 + erf(u / np.sqrt(2))) / 2) @ w
        u = z @ A
        return (u * expit(u) * (z @ B)) @ w

    return target


def linear_attention(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)
    return lambda X: (scores(X, W) * (X @ v)).sum(axis=1)


def sigmoid_attention(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)
    return lambda X: (expit(scores(X, W)) * (X @ v)).sum(axis=1)


def top_two(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)

    def target(X: Any) -> Any:
        s = scores(X, W)
        kept = s >= np.sort(s, axis=1)[:, -min(2, s.shape[1])][:, None]
        return (softmax(np.where(kept, s, -np.inf)) * (X @ v)).sum(axis=1)

    return target


def sparsemax(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)

    def target(X: Any) -> Any:
        s = scores(X, W)
        z = -np.sort(-s, axis=1)
        k = np.arange(1, s.shape[1] + 1)
        size = (1 + k * z > np.cumsum(z, axis=1)).sum(axis=1)
        tau = (np.cumsum(z, axis=1)[np.arange(len(s)), size - 1] - 1) / size
        return (np.maximum(s - tau[:, None], 0) * (X @ v)).sum(axis=1)

    return target


def added_positions(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)

    def target(X: Any) -> Any:
        n = np.arange(X.shape[1])[::-1, None]
        P = X + 0.3 * np.sin(n * (1 + np.arange(dim)) / 3)
        return (softmax(scores(P, W)) * (P @ v)).sum(axis=1)

    return target


def distance_bias(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)
    return lambda X: (softmax(scores(X, W) - 0.5 * np.arange(X.shape[1])[::-1]) * (X @ v)).sum(axis=1)


def two_layers(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)
    U, _ = parameters(dim, seed + 100)

    def target(X: Any) -> Any:
        Z = softmax(np.einsum("bmd,de,bne->bnm", X, U, X)) @ X
        return (softmax(scores(Z, W)) * (Z @ v)).sum(axis=1)

    return target


def noise_function(dim: int, seed: int) -> Callable[..., Any]:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((dim, 5)) * 4
    return lambda X: np.sin(X.mean(axis=1) @ A).prod(axis=1) + np.cos(X[:, -1] @ A).sum(axis=1)


def constant(dim: int, seed: int) -> Callable[..., Any]:
    return lambda X: np.full(len(X), 0.1 + seed)


def kernel_attention(dim: int, seed: int) -> Callable[..., Any]:
    _, v = parameters(dim, seed)
    return lambda X: (softmax(-((X - X[:, -1:]) ** 2).sum(axis=2)) * (X @ v)).sum(axis=1)


def cosine_attention(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)

    def target(X: Any) -> Any:
        unit = X / np.maximum(np.linalg.norm(X, axis=2, keepdims=True), 1e-12)
        return (softmax(4 * scores(unit, W)) * (X @ v)).sum(axis=1)

    return target


def hard_attention(dim: int, seed: int) -> Callable[..., Any]:
    W, v = parameters(dim, seed)
    return lambda X: (X @ v)[np.arange(len(X)), scores(X, W).argmax(axis=1)]


def max_pooling(dim: int, seed: int) -> Callable[..., Any]:
    _, v = parameters(dim, seed)
    return lambda X: X.max(axis=1) @ v


FOREIGN: dict[str, Callable[[int, int], Callable[..., Any]]] = {
    "linear attention": linear_attention,
    "sigmoid attention": sigmoid_attention,
    "top-2 attention": top_two,
    "sparsemax attention": sparsemax,
    "added positions": added_positions,
    "distance bias": distance_bias,
    "two layers": two_layers,
    "random function": noise_function,
    "constant": constant,
    "kernel attention": kernel_attention,
    "cosine attention": cosine_attention,
    "hard attention": hard_attention,
    "max pooling": max_pooling,
}
