"""Layers with positions, RMSNorm or sinks, as steps of `AttentionLayer`, in reading order.

kind      which positions, sinks and window: a handful of queries
presets   how much a run spends on conditioning
scene     what one token shows: RMSNorm, residual, tokens that write nothing
apart     heads told apart by the sums of their softmax denominators
values    what each head writes, and who shares values
weights   attention weights of all heads from one answer
turns     rotary frequencies, and who shares keys
keys      K and its bias
queries   Q and its bias
llama     all of it, one step after the other
assembly  from what was read to the model, its notes and its claims
"""
