"""Parts of `OutputLayer`, in reading order.

prompts    which prompts to ask
reading    rows of logits, up to a constant each, from all tokens or from chosen ones
width      more rows until nothing new shows: the width, its evidence, the row space
likeliest  the same from the likeliest tokens alone
"""
