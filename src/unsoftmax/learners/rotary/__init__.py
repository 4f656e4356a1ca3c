"""Layers with positions, RMSNorm or sinks, as steps of `AttentionLayer`, in reading order.

kind       which positions, sinks and window: a handful of queries; ALiBi told from rotary positions with a query bias
presets    how much a run spends on conditioning
limits     what counts as noise in exact and in rounded answers
scene      what one token shows: RMSNorm, residual, tokens that write nothing; behind a LayerNorm, off the mean
apart      heads told apart by the sums of their softmax denominators
filling    heads that fill the space, told apart by rotary positions themselves
overlapping  heads whose ranks add up to more than there is, by the span of what they write
values     what each head writes, and who shares values
weights    attention weights of all heads from one answer
turns      rotary frequencies, and who shares keys
keys       K and its bias
absolute   scores against an empty token, where differences do not say everything
qk_norm    keys and queries behind norms of their own
queries    Q and its bias
llama      all of it in order: logits of sinks, the law that scores follow
assembly   from what was read to the model, its notes and its claims
constants  what was measured or chosen, side by side
"""
