"""Unchanged targets computed by kernels that the calibration of the noise has not seen: how many raise an alarm?

The questions depend on the reference alone, so that one plan serves all kernels of a reference.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from unsoftmax.comparing.detection import Plan, detect, plan
from unsoftmax.comparing.references import reference_of

Kernel = Callable[[Any], Any]

ALPHA = 1e-3
"""Rate of false alarms that is stated."""
_LAYERS = 9
"""One reference in so many is a layer with vector answers."""


def rows(large: bool) -> Iterator[Row]:
    count = 10_000 if large else 120
    found, by_kernel = alarms(count)
    limit = max(1.0, ALPHA * count)
    figures = {"targets": sum(n for _, n in by_kernel.values()), "alarms": found, "by kernel": by_kernel}
    yield Row("false alarms", found / limit, 1.0, f"alarms / {limit:g} allowed", figures)


def alarms(targets: int, first: int = 10_000) -> tuple[int, dict[str, list[int]]]:
    """Alarms among at least that many targets, and [alarms, targets] by kernel."""
    found: dict[str, list[int]] = {}
    seed = first
    while sum(n for _, n in found.values()) < targets:
        kind, dim = ("float64", "float32")[seed % 2], (8, 12, 16, 24, 32)[seed // 2 % 5]
        model: Any
        if seed % _LAYERS == 0:
            model = us.models.AttentionLayer.random(min(dim, 16), 2, scale=2.0, seed=seed).astype(kind)
            kernels = _of_layers(model, kind)
        else:
            model = us.models.MultiHead.random(dim, 1 + seed % 3, norm=2.0, seed=seed).astype(kind)
            kernels = _of_heads(model, kind)
        spec = us.oracle(model, dtype=kind).spec
        made = plan(reference_of(model, spec), spec, kind, ALPHA, None, seed)
        for name, kernel in kernels:
            count = found.setdefault(f"{name}, {kind}", [0, 0])
            count[0] += alarmed(made, kernel, seed)
            count[1] += 1
        seed += 1
    return sum(a for a, _ in found.values()), found


def alarmed(made: Plan, kernel: Kernel, seed: int) -> bool:
    """Whether the comparison would call this target changed, or restless."""
    program = detect(made, ALPHA, None, seed, measured=False)
    probes = next(program)
    while True:
        try:
            probes = program.send(np.asarray(kernel(probes[: len(probes)].tokens), dtype=np.float64))
        except StopIteration as stopped:
            seen = stopped.value
            return seen.p_value <= ALPHA or seen.stochastic(ALPHA) is not None


def _of_heads(model: Any, kind: str) -> Iterator[tuple[str, Kernel]]:
    import torch

    W, v = np.asarray(model.W), np.asarray(model.v)
    tW, tv = torch.tensor(W), torch.tensor(v)
    order = np.random.default_rng(0).permutation(W.shape[1])

    def keys_first(X: Any) -> Any:
        x = torch.tensor(X).to(tW.dtype)
        s = torch.einsum("bnd,hde,be->hbn", x, tW, x[:, -1])
        return (torch.softmax(s, 2) * torch.einsum("bnd,hd->hbn", x, tv)).sum(dim=(0, 2)).double().numpy()

    def fused(X: Any) -> Any:
        x = torch.tensor(X).to(tW.dtype)[:, None].expand(-1, len(tW), -1, -1)
        q = torch.einsum("hde,be->bhd", tW, x[:, 0, -1])[:, :, None]
        mixed = torch.nn.functional.scaled_dot_product_attention(q, x, x, scale=1.0)[:, :, 0]
        return (mixed * tv).sum(dim=(1, 2)).double().numpy()

    def permuted(X: Any) -> Any:
        x, Wp, vp = X.astype(kind)[:, :, order], W[:, order][:, :, order], v[:, order]
        return us.models.MultiHead(Wp, vp)(x)

    def backwards(X: Any) -> Any:
        x = X.astype(kind)[:, ::-1]
        u = np.cumsum((W[:, None] * x[None, :, 0, None, :])[..., ::-1], axis=-1, dtype=kind)[..., -1]
        s = np.cumsum((x[None] * u[:, :, None])[..., ::-1], axis=-1, dtype=kind)[..., -1]
        e = np.exp(s - s.max(axis=2, keepdims=True))
        z = np.cumsum(e, axis=2, dtype=kind)[..., -1]
        mixed = np.cumsum(e[..., None] * x[None], axis=2, dtype=kind)[:, :, -1] / z[..., None]
        return np.cumsum((mixed * v[:, None])[..., ::-1], axis=-1, dtype=kind)[..., -1].sum(axis=0)

    yield from (("torch, keys first", keys_first), ("torch, fused", fused), ("permuted", permuted))
    yield "term by term, backwards", backwards


def _of_layers(model: Any, kind: str) -> Iterator[tuple[str, Kernel]]:
    import onnxruntime
    import torch

    module = model.to_torch()

    def by_torch(X: Any) -> Any:
        x = torch.tensor(X).to(getattr(torch, kind))
        with torch.no_grad():
            answer = module(x, x, x, need_weights=False)[0]
        return answer[:, -1].double().numpy()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        model.to_onnx(path)
        session = onnxruntime.InferenceSession(path)
    yield "torch layer", by_torch
    yield "onnxruntime", lambda X: session.run(None, {"tokens": X.astype(kind)})[0][:, -1]
