"""Gradient-descent distillation with PyTorch, as one would do without theory: fit a student to random queries."""

from __future__ import annotations

from typing import Any

import numpy as np

_STEPS, _BATCH, _RATE = 1500, 256, 0.02
LENGTHS = (1, 2, 3)


def random_sequences(d: int, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """`count` Gaussian sequences of one to three tokens, grouped by length; scores of a unit W are of order 1."""
    shares = np.array_split(np.arange(count), len(LENGTHS))
    size = d**-0.25
    return [size * rng.standard_normal((len(share), n, d)) for n, share in zip(LENGTHS, shares, strict=True)]


def distil_head(target: Any, d: int, queries: int, seed: int, rank: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(W, v) of a student head after Adam on the squared error, float64; of the given rank if the peer is told it."""
    rng = np.random.default_rng(seed)
    return distil_records(target, random_sequences(d, queries, rng), rng, seed, _STEPS, rank)


def distil_records(
    target: Any, sequences: list[np.ndarray], rng: np.random.Generator, seed: int, steps: int, rank: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The same on these sequences, arrays (n, N, d), in `steps` batches; the rate falls by a cosine."""
    import torch

    torch.manual_seed(seed)
    d = sequences[0].shape[2]
    groups = [(torch.from_numpy(X), torch.from_numpy(target(X))) for X in sequences]
    # A full W is its own parameter: K is the identity and stays so.
    K = torch.eye(d, dtype=torch.float64) if rank is None else torch.randn(d, rank, dtype=torch.float64).div(np.sqrt(d))
    Q = torch.randn(d, rank or d, dtype=torch.float64).div(np.sqrt(d)).requires_grad_()
    K.requires_grad_(rank is not None)
    v = torch.zeros(d, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([Q, v] if rank is None else [K, Q, v], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = torch.zeros((), dtype=torch.float64)
        for X, y in groups:
            some = torch.from_numpy(rng.integers(len(X), size=min(_BATCH, len(X))))
            tokens = X[some]
            scores = torch.einsum("bnd,bd->bn", tokens @ K, tokens[:, -1] @ Q)
            out = (torch.softmax(scores, dim=1) * (tokens @ v)).sum(dim=1)
            loss = loss + ((out - y[some]) ** 2).mean()
        loss.backward()
        optimiser.step()
        schedule.step()
    return (K @ Q.T).detach().numpy(), v.detach().numpy()
