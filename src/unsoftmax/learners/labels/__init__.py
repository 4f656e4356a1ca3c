"""Heads from labels (`Membership`), in reading order.

asking       decisions that survive flips, and the direction of v
entries      how large the entries of M = A W B' are, and rounds of bisection over them
values       what errors of v leave in those entries, and how far v must be known
cross        low rank: only a cross of M is bisected
consistency  labels that contradict each other
heads        how many heads, and a start for all of them
flips        the exact model fitted to sequences where the label flips
paper        Theorem B.1 as stated
constants    what was measured or chosen, side by side
"""
