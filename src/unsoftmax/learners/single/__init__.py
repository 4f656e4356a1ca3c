"""Parts of the learners of one head (`SingleHead`, `LowRank`, `Approximate`), in reading order.

measure         v, the size of W, and a matrix of logits with its repairs (Theorem 4.1)
affine          constant and score offset as a reduction
cross           the cross scheme: columns until nothing new shows, then rows (section 5, exact)
token_pairs     the same three measurements under answer noise, with radii
noisy_cross     the cross scheme under noise
averaging       noise that differs from sequence to sequence, averaged
averaging_cost  what averaging costs, as far as it can be said before the first query
constants       what was measured or chosen, side by side
"""
