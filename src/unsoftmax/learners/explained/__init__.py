"""Answers that explain themselves: parts of `SingleHead`, `LowRank` and `MultiHead`, in reading order.

gradient   the value and its gradient: W q and W'z from every pair of tokens
heads      the same for several heads: tokens moved by one step part them
maps       attention weights as score differences, and the noise they show
attention  the value and the attention weights: score differences, linear in W
design     which tokens to ask, and how long they should be
served     which of them a learner asks, and at what cost
constants  what was measured or chosen, side by side
"""
