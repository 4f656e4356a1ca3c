"""Parts of `OutputLayer`, in reading order.

reading    which prompts to ask; rows of logits, up to a constant each, from all tokens or from chosen ones
width      more rows until nothing new shows: the width, its evidence, the row space; the same from the likeliest tokens
constants  what was measured or chosen, side by side
"""
