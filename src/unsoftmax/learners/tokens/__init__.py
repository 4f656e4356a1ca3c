"""Heads over token ids (`TokenHead`), in reading order.

gaps         G_ij = S_ij - S_jj between tokens: pairs, repetition, chains through a known token
cross        which rows and columns of gaps to read
completion   entries that cannot be read where the cross needs them
embedded     with known embeddings a token head is a head of vectors
report       what the recovered head can and cannot say
constants    what was measured or chosen, side by side
"""
