"""A small Llama-style language model in NumPy, for practice: what people serve, at a size that is quickly learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.models.base import Array, seeded

_EPS = 1e-5
"""Inside every RMSNorm, as Llama has it."""


@dataclass(frozen=True, eq=False)
class Block:
    """Attention with rotary positions and shared keys, then a gated network; weights act as x @ weight.

    q (d, H dh), k and v (d, G dh), o (H dh, d), gate and up (d, m), down (m, d), norms (d,).
    """

    q: Array
    k: Array
    v: Array
    o: Array
    gate: Array
    up: Array
    down: Array
    attention_norm: Array
    network_norm: Array


@dataclass(frozen=True, eq=False)
class Llama:
    """Embeddings (V, d), blocks, a final RMSNorm, an unembedding (V, d); causal."""

    embeddings: Array
    blocks: tuple[Block, ...]
    final_norm: Array
    unembedding: Array
    heads: int
    kv_heads: int
    base: float = 10000.0

    @classmethod
    def random(
        cls, dim: int = 64, vocabulary: int = 512, layers: int = 1, heads: int = 8, kv_heads: int = 2, seed: int = 0
    ) -> Llama:
        """Gaussian weights; scores and updates of the size trained models have."""
        rng = seeded(seed, dim=dim, vocabulary=vocabulary, layers=layers)
        dh, m = dim // heads, 2 * dim

        def weight(rows: int, columns: int) -> Array:
            return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32).astype(np.float64)

        def norm() -> Array:
            return np.exp(0.2 * rng.standard_normal(dim)).astype(np.float32).astype(np.float64)

        blocks = tuple(
            Block(
                weight(dim, heads * dh),
                weight(dim, kv_heads * dh),
                weight(dim, kv_heads * dh),
                weight(heads * dh, dim),
                weight(dim, m),
                weight(dim, m),
                weight(m, dim),
                norm(),
                norm(),
            )
            for _ in range(layers)
        )
        embeddings = rng.standard_normal((vocabulary, dim)).astype(np.float32).astype(np.float64)
        return cls(embeddings, blocks, norm(), weight(dim, vocabulary).T, heads, kv_heads)

    @property
    def dim(self) -> int:
        return self.embeddings.shape[1]

    @property
    def vocabulary(self) -> int:
        """Number V of tokens."""
        return len(self.embeddings)

    def hidden(self, embedded: Array) -> Array:
        """Hidden states (batch, N, d) behind the final norm, for vectors (batch, N, d)."""
        return _rms(self.stream(embedded), self.final_norm)

    def stream(self, embedded: Array) -> Array:
        """The same before the final norm."""
        x = np.asarray(embedded, dtype=np.float64)
        for block in self.blocks:
            x = x + self._attention(block, _rms(x, block.attention_norm))
            z = _rms(x, block.network_norm)
            gate = z @ block.gate
            x = x + (gate / (1 + np.exp(-gate)) * (z @ block.up)) @ block.down
        return x

    def logits(self, embedded: Array) -> Array:
        """Logits (batch, V) of the token after vectors (batch, N, d)."""
        return np.asarray(self.hidden(embedded)[:, -1] @ self.unembedding.T)

    def __call__(self, ids: Array) -> Array:
        """Logits (batch, V) of the token after ids (batch, N)."""
        return self.logits(self.embeddings[np.asarray(ids)])

    def _attention(self, block: Block, z: Array) -> Array:
        batch, N, _ = z.shape
        dh = block.q.shape[1] // self.heads
        q = self._rotated((z @ block.q).reshape(batch, N, self.heads, dh))
        k = self._rotated((z @ block.k).reshape(batch, N, self.kv_heads, dh))
        v = (z @ block.v).reshape(batch, N, self.kv_heads, dh)
        k, v = (np.repeat(part, self.heads // self.kv_heads, axis=2) for part in (k, v))
        scores = np.einsum("bnhd,bmhd->bhnm", q, k) / np.sqrt(dh)
        scores = np.where(np.tril(np.ones((N, N), dtype=bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.asarray(np.einsum("bhnm,bmhd->bnhd", weights, v).reshape(batch, N, -1) @ block.o)

    def _rotated(self, x: Array) -> Array:
        """Pairs of neighbouring coordinates turned by position times frequency."""
        _, N, _, dh = x.shape
        angles = np.arange(N)[:, None] * self.base ** (-np.arange(0, dh, 2) / dh)
        cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def _rms(x: Array, gain: Array) -> Array:
    return np.asarray(x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + _EPS) * gain)
