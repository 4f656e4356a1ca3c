"""The attention of a whole block or one-layer language model, as steps of `AttentionLayer`, in reading order.

infinity   what a context adds to an endless last token: networks, norms and the unembedding drop out
quiet      tokens that write nothing, before anything else is known
table      heads told apart by the weight of the last token itself
fits       what heads write of one token, and values of all directions
whole      where each head writes, who shares values, and the RMSNorm's eps; the block as the steps of `rotary` want to
           see it, a layer on normalised tokens; all of it, one step after the other
constants  what was measured or chosen, side by side
"""
