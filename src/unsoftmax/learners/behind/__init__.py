"""Several heads behind an unknown network that is homogeneous at infinity.

far      the pair query along rays, and what two numbers of copies tell about the only head that is on
corner   where all heads are off nothing answers; its faces are the heads, one after the other
rows     every W_h with the other heads held off
heads    the three together
split    which part of the network reads which head
"""
