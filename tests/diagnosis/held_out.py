"""Targets kept apart from the other tests, each with what is true of it: what confidences are earned on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp

import unsoftmax as us
from tests.diagnosis.targets import scores, softmax
from unsoftmax.models.weighing import Weighing

LAST = {"order": False, "answering position": "last", "other tokens": True}
NO_HEADS = {"heads": False, "attention behind a network": False, "token head": False}
LINEAR, AFFINE, CURVED = {"one row": "linear"}, {"one row": "affine"}, {"one row": "smooth"}


@dataclass(frozen=True)
class HeldOut:
    """`truth` holds values of findings by name; findings that it does not name are not judged."""

    name: str
    family: str
    make: Callable[[], Any]
    truth: dict[str, Any] = field(default_factory=dict)
    code: str = ""


def head(dim: int, seed: int, norm: float = 2.5) -> tuple[Any, Any]:
    made = us.models.SingleHead.random(dim, norm=norm, seed=1000 + seed)
    return made.W, made.v


def layer(dim: int, seed: int, **rest: Any) -> us.models.AttentionLayer:
    return us.models.AttentionLayer.random(dim, 2, seed=1000 + seed, **rest)


def rolled(model: Any) -> Callable[..., Any]:
    """The same model, answering for its first token."""
    return lambda X: model(np.roll(X, -1, axis=1))


def pooled(model: Any) -> Callable[..., Any]:
    """The mean of its answers over all positions."""
    return lambda X: np.mean([model(np.roll(X, -k, axis=1)) for k in range(X.shape[1])], axis=0)


def sink(dim: int, seed: int) -> Callable[..., Any]:
    W, v = head(dim, seed)

    def target(X: Any) -> Any:
        s = scores(X, W)
        top = np.maximum(s.max(axis=1, keepdims=True), 0.0)
        e = np.exp(s - top)
        return (e * (X @ v)).sum(axis=1) / (e.sum(axis=1) + np.exp(-top[:, 0]))

    return target


def sigmoid_weights(dim: int, seed: int) -> Callable[..., Any]:
    W, v = head(dim, seed)
    return lambda X: (expit(scores(X, W) - 1.0) * (X @ v)).sum(axis=1)


def squared_relu(dim: int, seed: int) -> Callable[..., Any]:
    W, v = head(dim, seed)
    return lambda X: (np.maximum(scores(X, W), 0.0) ** 2 * (X @ v)).sum(axis=1)


def log_softmax(dim: int, seed: int) -> Callable[..., Any]:
    W, _ = head(dim, seed)
    A = np.random.default_rng(seed).standard_normal((dim, 4)) / np.sqrt(dim)

    def target(X: Any) -> Any:
        z = np.einsum("bn,bnd->bd", softmax(scores(X, W)), X) @ A
        return z - logsumexp(z, axis=1, keepdims=True)

    return target


def capped(cap: float, dim: int, seed: int, outputs: bool) -> Callable[..., Any]:
    """Scores under a soft cap, as a head or as a layer."""
    made = layer(dim, seed)
    W, v = 3 * made.W, np.ones(dim) / np.sqrt(dim)

    def target(X: Any) -> Any:
        mixed = [np.einsum("bn,bnd->bd", softmax(cap * np.tanh(scores(X, w) / cap)), X) for w in W]
        if not outputs:
            return mixed[0] @ v
        return sum(z @ P.T for z, P in zip(mixed, made.P, strict=True))

    return target


def normed_scores(dim: int, seed: int) -> Callable[..., Any]:
    """Queries and keys over their root mean square."""
    made = layer(dim, seed)

    def target(X: Any) -> Any:
        unit = X / np.sqrt((X**2).mean(axis=2, keepdims=True) + 1e-6)
        parts = [softmax(scores(unit, W)) for W in made.W]
        return sum(np.einsum("bn,bnd->bd", a, X) @ P.T for a, P in zip(parts, made.P, strict=True))

    return target


def slopes(dim: int, seed: int) -> Callable[..., Any]:
    """A bias that falls with the distance (ALiBi), as a layer."""
    made = layer(dim, seed)

    def target(X: Any) -> Any:
        far = 0.4 * np.arange(X.shape[1])[::-1]
        parts = [softmax(scores(X, W) - far) for W in made.W]
        return sum(np.einsum("bn,bnd->bd", a, X) @ P.T for a, P in zip(parts, made.P, strict=True))

    return target


def by_length(dim: int, seed: int) -> Callable[..., Any]:
    """Scores that grow with the logarithm of the length, as one head."""
    W, v = head(dim, seed)

    def target(X: Any) -> Any:
        return (softmax(scores(X, W) * np.log(1 + X.shape[1])) * (X @ v)).sum(axis=1)

    return target


def distances(dim: int, seed: int) -> Callable[..., Any]:
    """Weights that fall with the distance of vectors, as a layer."""
    made = layer(dim, seed)

    def target(X: Any) -> Any:
        parts = [softmax(-(((X - X[:, -1:]) @ W) ** 2).sum(axis=2)) for W in made.W]
        return sum(np.einsum("bn,bnd->bd", a, X) @ P.T for a, P in zip(parts, made.P, strict=True))

    return target


def hardest(dim: int, seed: int) -> Callable[..., Any]:
    """All weight on the largest score, as a layer."""
    made = layer(dim, seed)

    def target(X: Any) -> Any:
        rows = np.arange(len(X))
        return sum(X[rows, scores(X, W).argmax(axis=1)] @ P.T for W, P in zip(made.W, made.P, strict=True))

    return target


def best_three(dim: int, seed: int) -> Callable[..., Any]:
    """Softmax over the three largest scores alone, as a layer."""
    made = layer(dim, seed)

    def kept(s: Any) -> Any:
        return np.where(s >= np.sort(s, axis=1)[:, -min(3, s.shape[1])][:, None], s, -np.inf)

    def target(X: Any) -> Any:
        parts = [softmax(kept(scores(X, W))) for W in made.W]
        return sum(np.einsum("bn,bnd->bd", a, X) @ P.T for a, P in zip(parts, made.P, strict=True))

    return target


def before_rms(dim: int, seed: int, residual: bool) -> Callable[..., Any]:
    made, gamma = layer(dim, seed), 1 + 0.3 * np.random.default_rng(seed).standard_normal(dim)

    def target(X: Any) -> Any:
        y = made(X / np.sqrt((X**2).mean(axis=2, keepdims=True) + 1e-6) * gamma)
        return y + X[:, -1] if residual else y

    return target


def behind_rms(dim: int, seed: int, residual: bool) -> Callable[..., Any]:
    made, gamma = layer(dim, seed), 1 + 0.3 * np.random.default_rng(seed).standard_normal(dim)

    def target(X: Any) -> Any:
        y = made(X) + X[:, -1] if residual else made(X)
        return y / np.sqrt((y**2).mean(axis=1, keepdims=True) + 1e-6) * gamma

    return target


def encoder(dim: int, seed: int, norm_first: bool) -> Any:
    import torch

    torch.manual_seed(seed)
    whole = torch.nn.TransformerEncoderLayer(dim, 2, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    return us.adapters.torch_module(whole.eval())


def scalar(made: Callable[..., Any], dim: int) -> Callable[[], Any]:
    return lambda: us.oracle(made, dim)


def vector(made: Callable[..., Any], dim: int, outputs: int | None = None) -> Callable[[], Any]:
    return lambda: us.oracle(made, dim, outputs=outputs or dim)


def foreign(dim: int, seed: int) -> Iterator[HeldOut]:
    """Targets that no learner fits."""

    def out(name: str, code: str, make: Callable[[], Any], **truth: Any) -> HeldOut:
        facts = NO_HEADS | {name.replace("_", " "): value for name, value in truth.items()}
        return HeldOut(f"{name} d={dim}", "outside", make, facts, code)

    made, plain = layer(dim, seed), us.models.SingleHead(*head(dim, seed))
    yield out("sink", "law", scalar(sink(dim, seed), dim), **CURVED, **LAST, copies=False)
    yield out("sigmoid weights", "law", scalar(sigmoid_weights(dim, seed), dim), **CURVED, **LAST, copies=False)
    yield out("temperature", "law", scalar(by_length(dim, seed), dim), **LINEAR, **LAST, copies=False)
    squared = {**LAST, "kernel": "relu^2", "normalised": False}
    yield HeldOut(f"squared ReLU weights d={dim}", "kernel head", scalar(squared_relu(dim, seed), dim), squared)
    yield out("log-softmax", "row", vector(log_softmax(dim, seed), dim, 4), **CURVED, **LAST)
    first = {"order": True, "answering position": "first", "other tokens": True}
    yield out("head at the first token", "first position", scalar(rolled(plain), dim), **LINEAR, **first)
    yield out("layer at the first token", "first position", vector(rolled(made), dim), **first)
    everyone = {"order": False, "answering position": "all", "other tokens": True}
    yield out("pooled head", "pooled", scalar(pooled(plain), dim), **LINEAR, **everyone)
    yield out("pooled layer", "pooled", vector(pooled(made), dim), **everyone)
    for cap in (5.0, 50.0):
        bounded = {"scores": "bounded", **LINEAR, **LAST}
        facts = {**NO_HEADS, **LINEAR, **LAST, "kernel": f"softcap {cap:g}", "normalised": True}
        yield HeldOut(f"cap {cap:g} d={dim}", "kernel head", scalar(capped(cap, dim, seed, False), dim), facts)
        yield out(f"cap {cap:g} of a layer", "bounded scores", vector(capped(cap, dim, seed, True), dim), **bounded)
        behind = us.models.AttentionLayer.random(dim, 2, norm="post", residual=True, seed=seed)
        behind = replace(behind, weighing=Weighing(softcap=cap))
        yield out(f"cap {cap:g} before a norm", "bounded scores", vector(behind, dim), scores="bounded", **LAST)
    normed = {"scores": "bounded", **LINEAR, **LAST}
    yield out("normed queries and keys", "", vector(normed_scores(dim, seed), dim), **normed)
    kernel, hard = distances(dim, seed), hardest(dim, seed)
    yield out("distance kernel", "law", vector(kernel, dim), **LINEAR, **LAST, **{"mixing law": False})
    yield out("hard choice", "law", vector(hard, dim), **LINEAR, **LAST, **{"mixing law": False})
    few = best_three(dim, seed)
    yield out("best three", "", vector(few, dim), **LINEAR, **LAST, **{"short tokens": False})
    yield out("slopes", "order", vector(slopes(dim, seed), dim), order=True, **{"answering position": None}, **LINEAR)
    yield out("encoder layer, norms behind", "norm behind", lambda: encoder(dim, seed, False), **LAST)
    before = NO_HEADS | LAST | {"networks": True, "frozen contexts": True}
    yield HeldOut(f"encoder layer, norms before d={dim}", "attention stack", lambda: encoder(dim, seed, True), before)
    for residual in (False, True):
        name = f"RMSNorm behind, residual={residual}"
        yield out(name, "norm behind", vector(behind_rms(dim, seed, residual), dim), **LAST, **{"norm last": False})
    within = {"one row": "bounded", **LAST}
    yield out("tanh", "row", scalar(lambda X: np.tanh(plain(X)), dim), **within)
    yield out("sigmoid", "row", scalar(lambda X: expit(plain(X)), dim), **within)


def tokens(seed: int) -> Iterator[HeldOut]:
    """Targets over ids: a head, and what only takes ids too."""
    rng = np.random.default_rng(seed)
    table, values = rng.standard_normal((50, 50)), rng.standard_normal(50)
    good = us.models.TokenHead.random(50, 3, seed=1000 + seed)
    no, yes = {"token head": False}, {"token head": True}
    classes = us.token_oracle(lambda ids: table[ids].mean(axis=1), 50, outputs=50)
    yield HeldOut(f"50 classes {seed}", "outside", lambda: classes, no, "outputs")
    summed = us.token_oracle(lambda ids: np.tanh(values[ids].sum(axis=1)), 50)
    yield HeldOut(f"bag of words {seed}", "outside", lambda: summed, no, "tokens")
    largest = us.token_oracle(lambda ids: values[ids].max(axis=1), 50)
    yield HeldOut(f"largest value {seed}", "outside", lambda: largest, no, "tokens")
    yield HeldOut(f"token head {seed}", "token head", lambda: us.token_oracle(good), yes)
    rounded = us.token_oracle(lambda ids: np.round(good(ids), 4), 50)
    yield HeldOut(f"token head with 4 decimals {seed}", "token head", lambda: rounded, yes)


def domestic(dim: int, seed: int) -> Iterator[HeldOut]:
    """Targets of a class, of sizes and kinds that stand nowhere else in the tests of the diagnosis."""
    W, v = head(dim, seed, 1.0)
    rng = np.random.default_rng(seed)
    one = {"heads": True, **LAST}
    exact = {"precision": "float64", "deterministic": True}
    facts: dict[str, Any] = one | LINEAR | exact | {"affine scores": False, "rank": (dim, None)}
    yield HeldOut(f"head d={dim}", "single head", scalar(us.models.SingleHead(W, v), dim), facts)
    offset = us.models.SingleHead(W, v, c=rng.standard_normal(dim), constant=-2.0)
    yield HeldOut(f"offset d={dim}", "affine head", scalar(offset, dim), one | AFFINE | {"affine scores": True})
    many = us.models.MultiHead.random(dim, 3, norm=1.5, seed=1000 + seed)
    yield HeldOut(f"three heads d={dim}", "multi-head attention", scalar(many, dim), one | LINEAR)
    for norm in (None, "pre", "post"):
        for residual in (False, True):
            facts = exact | LAST | {"norm": norm or "none", "mixing law": True, "scores": "free", "residual": residual}
            facts |= {"short tokens": True}
            facts |= {"norm before": "layer" if norm == "pre" else "none"}
            if norm == "pre" and residual:
                facts |= {"one row": "normalised"}
            made = layer(dim, seed, norm=norm, residual=residual)
            name = f"layer norm={norm} residual={residual} d={dim}"
            yield HeldOut(name, "attention layer", scalar(made, dim), facts)
    for bias in (False, True):
        shape = {"one row": "piecewise linear" if bias else "homogeneous"}
        tall = us.models.Transformer.random(dim, dim + 5, norm=1.5, bias=bias, seed=1000 + seed)
        facts = LAST | shape | {"attention behind a network": True}
        yield HeldOut(f"Transformer bias={bias} d={dim}", "transformer", scalar(tall, dim), facts)
        net = us.models.ReluNetwork.random(dim, dim + 3, bias=bias, seed=1000 + seed)
        yield HeldOut(f"network bias={bias} d={dim}", "ReLU network", scalar(net, dim), shape | {"other tokens": False})
    for residual in (False, True):
        facts = {"norm": "rms", "norm before": "rms", **LAST}
        made_rms = vector(before_rms(dim, seed, residual), dim)
        yield HeldOut(f"layer norm=rms residual={residual} d={dim}", "attention layer", made_rms, facts)
    noise = np.random.default_rng(seed)
    clean = us.models.SingleHead(W, v)
    noisy = us.oracle(lambda X: clean(X) + 1e-3 * noise.standard_normal(len(X)), dim, max_norm=16.0)
    yield HeldOut(
        f"noise of 0.001 within a norm of 16 d={dim}",
        "single head",
        lambda: noisy,
        one | LINEAR | {"deterministic": False},
    )


def modern(seed: int) -> Iterator[HeldOut]:
    """Layers with positions, stacks and other kernels, of sizes and kinds that stand nowhere else in the tests."""
    heads, groups, width = ((6, 3, 4), (3, 1, 6), (4, 4, 6), (8, 2, 4), (5, 1, 8))[seed]
    dim, base = heads * width + 8, (3e3, 2e4, 1e5, 5e5, 7e4)[seed]
    rope = us.models.Rope.ladder(width, base)
    slopes = us.models.Alibi(0.5 ** np.linspace(0.7, 4.0, heads))
    usual: dict[str, Any] = {"norm": "rms", "residual": True, "bias": False, "kv_groups": groups, "scale": 2.0}
    kinds: dict[str, dict[str, Any]] = {
        "rotary": {"positions": rope},
        "rotary, query bias": {"positions": rope, "bias": True},
        "rotary, no norm": {"positions": rope, "norm": None},
        "slopes": {"positions": slopes},
        "sinks": {"positions": rope, "sinks": True},
        "window": {"positions": rope, "window": 7 + 2 * seed},
        "capped": {"positions": rope, "softcap": 15.0 + seed},
        "normed": {"positions": rope, "qk_norm": True},
    }
    orders = {"rotary, query bias": "rotary with a query bias", "slopes": "alibi"}
    for name, rest in kinds.items():
        made = us.models.AttentionLayer.random(dim, heads, width, seed=2000 + seed, **(usual | rest))
        facts: dict[str, Any] = {
            "order": True,
            "norm": "none" if "no norm" in name else "rms",
            "positions": orders.get(name, "rotary"),
            "sinks": name == "sinks",
            "window": rest.get("window"),
            "served heads": heads,
            "value groups": groups,
            "key groups": groups,
            "score law": {"capped": "capped", "normed": "normed"}.get(name, "linear"),
        }
        yield HeldOut(f"{name} d={dim}", "attention layer", scalar(made, dim), facts)
    for name, shape in (
        ("stack", {"layers": 2}),
        ("causal stack", {"layers": 3, "norm": "rms", "causal": True}),
        ("stack with networks", {"layers": 2, "network": 13}),
        ("causal stack with gated networks", {"layers": 2, "network": 10, "gated": True, "causal": True}),
    ):
        deep = us.models.AttentionStack.random(10 + 2 * seed, seed=2000 + seed, **shape)
        facts = {"networks": "networks" in name, "frozen contexts": True}
        yield HeldOut(f"{name} d={deep.dim}", "attention stack", lambda deep=deep: us.oracle(deep), facts)
    for kernel in ("softplus", "1 + elu", "sigmoid", f"softcap {9 + 4 * seed}"):
        for normalised in (True, False):
            size = 6 + 3 * seed
            other = us.models.KernelHead.random(size, kernel, normalised=normalised, norm=1.5, seed=2000 + seed)
            facts = {"kernel": kernel, "normalised": normalised}
            name = f"{kernel} {'normalised' if normalised else 'summed'} d={size}"
            yield HeldOut(name, "kernel head", scalar(other, size), facts)


def held_out() -> Iterator[HeldOut]:
    """All of them."""
    for seed in range(5):
        yield from modern(seed)
    for seed, dim in enumerate((10, 14, 20, 34, 48)):
        yield from foreign(dim, seed)
        yield from domestic(dim, seed)
        yield from tokens(seed)
