"""How much a run spends on conditioning: numbers of probes, relative to what is unknown.

Theory: docs/theory/attention-layer.md, "A real layer", method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unsoftmax import theory


@dataclass(frozen=True)
class Preset:
    """Sizes of the designs, relative to the head dimension s where they are fractions.

    spare            probes of a head's token beyond s, for its range
    groups           value maps measured in this many groups; 1 reads all of them off sum P and the ranges
    rows             tokens per query, as a fraction of s, where a key direction is read in full
    extra            query tokens with full key directions beyond s, as a fraction of s (at least 2)
    blocks, block    queries per remaining query token, and their tokens as a fraction of s
    scans            hard-attention scans of which the widest is kept
    polish           refine the ranges at tokens whose margins are as wide as the tokens
    """

    spare: float
    groups: int
    rows: float
    extra: float
    blocks: int
    block: float
    scans: int
    polish: bool = False

    def tokens(self, s: int) -> int:
        """Tokens per query of the full part."""
        return max(1, round(self.rows * s))

    def block_tokens(self, s: int) -> int:
        """Tokens per query of the cross part."""
        return max(1, round(self.block * s))

    def full_queries(self, s: int) -> int:
        """Query tokens with full key directions, the first one (that gives c) not counted."""
        return s + max(2, round(self.extra * s))

    def range_probes(self, s: int) -> int:
        """Probes of one head's token."""
        return s + max(2, round(self.spare * s))

    def for_directions(self) -> Preset:
        """Behind a LayerNorm every answer lacks its scale: ranges and key directions want more probes."""
        more = replace(self, spare=max(self.spare, 0.25), extra=max(self.extra, 0.125), scans=max(self.scans, 2))
        # The scale is read off what the tokens leave of an answer.
        return replace(more, rows=min(self.rows, 0.875))

    def least_blocks(self, d: int, H: int, s: int, room: int) -> int:
        """Queries at each query token whose key directions are not read in full, at least: one where an answer of
        `room` numbers is too narrow for the blocks of all H heads, and what it lacks may be asked together."""
        narrow = H * self.block_tokens(s) > room
        return 1 if narrow else min(self.blocks, -(-d // self.tokens(s)))

    def least_queries(self, d: int, H: int, s: int, room: int) -> int:
        """What the phase "main" takes at least for H heads of rank s and answers of `room` numbers, one reading of the
        ranges and no polish."""
        blocks = self.least_blocks(d, H, s, room)
        return replace(self, blocks=blocks, block=1.0, polish=False).main_queries(d, H, s)

    def main_queries(self, d: int, H: int, s: int) -> int:
        """Closed form of the phase "main" for H heads of rank s, W_h and P_h alike."""
        full, m, rows = min(self.full_queries(s), d), self.block_tokens(s), self.tokens(s)
        counts = theory.attention_layer_queries(
            d,
            H,
            s,
            spare=self.range_probes(s) - s,
            groups=min(self.groups, H),
            rows=rows,
            full=full,
            blocks=max(self.blocks, -(-s // m)),
        )
        # Polishing reads the ranges twice, and in between the key directions at one query token.
        first = H * PRESETS["lean"].range_probes(s) + -(-d // rows) if self.polish else 0
        return counts - (d + 1) + first


PRESETS = {
    "lean": Preset(spare=0.0, groups=1, rows=0.9, extra=0.0, blocks=1, block=1.0, scans=1),
    "balanced": Preset(spare=0.125, groups=2, rows=0.75, extra=0.25, blocks=2, block=0.625, scans=2),
    "robust": Preset(spare=0.375, groups=2, rows=0.5, extra=0.5, blocks=3, block=0.5, scans=2, polish=True),
}


def chosen(name: str | None, coarse: bool) -> str:
    """The preset asked for; None: by the number format, for conditioning is what a coarse one has no digits for."""
    return name or ("robust" if coarse else "balanced")
