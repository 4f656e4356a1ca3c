"""Attention in front of an unknown network (`AttentionBehind`, `Transformer`), in reading order.

infinity   how the network behaves at infinity: its degree of homogeneity, and rows at which it is large
rays       W of one head, one query for each of its degrees of freedom
bounded    W behind a known network where tokens are bounded
far        several heads: the pair query along rays, and what two numbers of copies tell about the only head that is on
corner     where all heads are off nothing answers; its faces are the heads, one after the other
rows       every W_h with the other heads held off; and the three together
split      which part of the network reads which head
constants  what was measured or chosen, side by side
"""
