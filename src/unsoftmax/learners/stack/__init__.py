"""Steps of `AttentionStack`, in reading order.

frame      which norm stands before the layers, and the coordinates in which normalised tokens live
far        tokens so long that no layer turns them: what all heads of all layers add to the last one
apart      all heads at one displacement, told apart by algebra
star       the same heads at neighbouring displacements: W, c and P; in all directions where they will not be polished,
           part by part behind a final norm, which hides what is written along the last token
near       one layer: what its heads write, from tokens inside the ball of its norm
order      which head feeds which: layers
polish     Gauss-Newton on what was asked, and on the stack itself
networks   the networks between the heads, where they are asked for
assembly   from what was read to the model, its notes and its claims
hard       without norms: paths, where tokens are so long that every head picks one
plain      without norms: scores at tokens of ordinary length beside these, and Gauss-Newton
constants  what was measured or chosen, side by side
"""
