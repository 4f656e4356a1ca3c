"""Parts of `ReluNetwork`, in reading order.

noise      size and noise of the answers on the unit sphere, and whether they are homogeneous there and not smooth
search     which angles to ask next
chain      the state of that search
gradients  gradients of the cells that a great circle passes
purse      what a network may cost, and what it has cost
kinks      all kinks along a half great circle
peel       circles until nothing is left, then least squares over all cells
constants  what was measured or chosen, side by side
"""
