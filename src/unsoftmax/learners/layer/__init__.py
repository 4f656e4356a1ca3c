"""Steps of `AttentionLayer`, in reading order.

presets      how much a run spends on conditioning
norms        is there a LayerNorm, and on which side
plain        a layer without LayerNorm: the affine map and the noise from one-token queries, then the steps below, one
             after the other, or inside the ball of a norm limit
scan         hard attention: which token each head picks, and how many heads there are, if any write
picks        picked tokens: how answers respond to moves of them, and how far they may move
ranges       where each head writes, and P_h
scores       one sequence reads all heads' attention
keys         W_h and c_h: key directions in full at a few query tokens
polish       tokens with the widest margins
pre_norm     LayerNorm before attention: heads told apart by eigenvalues
derivatives  derivatives of answers to two tokens: clusters of eigenvalues, one per head
ball         what its tokens can be made to be
post_norm    LayerNorm after attention: every answer is a direction
post_ranges  where each head writes before that norm, and P_h, also of heads that overlap
shell        its gamma and beta, and the sum before it up to one scale
blurred      whether noise may have blurred the rank or the cluster that a refusal rests on
assembly     from what was read to the model, its notes and its claims
constants    what was measured or chosen, side by side
"""
