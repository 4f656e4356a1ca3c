"""How much a run spends on conditioning: the share of the slots of an answer that is used, and repeats.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unsoftmax import theory

if TYPE_CHECKING:
    from unsoftmax.learners.rotary.weights import Reader


@dataclass(frozen=True)
class Plan:
    """fill      share of the readable slots of an answer that are used: fewer read better
    spare     cells per token of the values beyond H, which tell the right root from others
    tokens    tokens of the key fit beyond its unknowns d + 1
    queries   query tokens at which a new token's key is read, beyond the fewest
    repeats   sequences for every query token of the query fit, at least
    more      further tokens, at most, for values that the others hardly show: what two leave weak is rare
    rough     heads that fill the space are read as well as small steps show them, before as many query tokens as others
    beyond    where no token is quiet: query tokens that keys are read before beyond s + 4, as a share of s; half that
              share of d more tokens, and one more sequence for every query token of the query fit. Random ones are as
              badly conditioned as square matrices are: errors fall by 4 to 10 for an eighth to a third more queries
    """

    fill: float
    spare: int
    tokens: int
    queries: int
    repeats: int
    more: int = 2
    rough: bool = False
    beyond: float = 0.0

    def beyond_fewest(self, reader: Reader, n: int) -> int:
        """Of n query tokens or tokens, how many more where none is quiet."""
        return 0 if reader.quiet or self.rough else round(self.beyond * n)

    def slots(self, reader: Reader) -> int:
        """Tokens of a sequence; an empty one costs a slot where the query token writes."""
        most = reader.scene.shown // len(reader.values.O) - (not reader.quiet)
        return self.filled(reader.slots, min(most, reader.near))

    def last_slots(self, reader: Reader) -> int:
        """Tokens of a sequence before a query token that writes; with sinks its own weight costs a slot."""
        most = reader.scene.shown // len(reader.values.O) - reader.absolute
        return self.filled(reader.slots - reader.absolute, min(most, reader.near), 2 - reader.absolute)

    def main_queries(self, d: int, H: int, G: int, s: int) -> int:
        """Closed form of the phase "main" for a layer of d outputs with G s < d and H s <= d."""
        m = self.filled(s, d // H)
        return theory.rotary_layer_queries(
            d,
            H,
            G,
            s,
            slots=m,
            last_slots=m,
            spare=self.spare,
            tokens=self.tokens,
            extra=self.queries,
            repeats=self.repeats,
        )

    def block_queries(self, d: int, H: int, G: int, s: int, *, final_norm: bool) -> int:
        """Closed form of the phase "main" for the attention of a block, where G s < d and H s <= d."""
        m = self.filled(min(s, (d - final_norm) // H), (d - final_norm) // H)
        return theory.block_queries(
            d,
            H,
            G,
            s,
            final_norm=final_norm,
            slots=m,
            last_slots=m,
            tokens=self.tokens,
            extra=self.queries,
            repeats=self.repeats,
        )

    def filled(self, usable: int, most: int, least: int = 2) -> int:
        """Differences of logs take two tokens at least; `most` is what an answer has room for."""
        return max(min(least, most), min(round(self.fill * usable), most))


PLANS = {
    "lean": Plan(fill=1.0, spare=1, tokens=2, queries=1, repeats=1),
    "balanced": Plan(fill=0.75, spare=1, tokens=3, queries=1, repeats=1, beyond=0.5),
    "robust": Plan(fill=0.625, spare=3, tokens=8, queries=2, repeats=2, beyond=0.5),
}
