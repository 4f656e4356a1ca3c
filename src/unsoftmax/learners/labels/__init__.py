"""Heads from labels (`Membership`), in reading order.

asking       decisions that survive flips, and the direction of v
size         how large the entries of M = A W B' are
entries      rounds of bisection over the entries of M
values       what errors of v leave in those entries, and how far v must be known
cross        low rank: only a cross of M is bisected
consistency  labels that contradict each other
ruler        several heads: a token weighed against copies of another
heads        how many heads, and a start for all of them
flips        the exact model fitted to sequences where the label flips
paper        Theorem B.1 as stated
"""
