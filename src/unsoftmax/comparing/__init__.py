"""Is the served model the one that was shipped, and if not, what changed? In reading order.

compare     `compare`: oracle and reference in, Comparison out
references  what the target should be: a model, a module, a file or a callable
heads       the structure that heads and layers share
arithmetic  a model computed in other number formats and orders of operations
noise       how far rounding may take an answer
designs     what to ask: near ties, single tokens, longer sequences
statistics  tails, bets and power
power       the smallest change that would have been seen
detection   does it differ at all
findings    what a comparison says
explain     what changed, in the order that matters
"""

from unsoftmax.comparing.compare import compare

__all__ = ["compare"]
