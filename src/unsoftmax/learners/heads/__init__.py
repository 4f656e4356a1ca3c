"""Multi-head attention, one idea per file.

ground        what one-token queries tell: the sum of the values, the noise; and the pair query the rest stands on
discovery     heads appear as jumps of a saturated answer along a half circle
arcs          between jumps the answer is linear: values of the heads by differences
isolation     probes orthogonal to the other heads' values see one head alone
three_tokens  the few directions isolation cannot reach
columns       one logit per entry of W, full or low rank
"""
