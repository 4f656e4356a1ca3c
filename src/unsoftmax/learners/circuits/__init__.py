"""Parts of `TokenLayer`, in reading order.

frame      every token alone: the output layer, and what hidden states are measured by
cube       two tokens in every place before one query: heads apart by their denominators
values     other tokens in the first place: what every head writes, and the places, at that query
scores     other queries: what every head looks for
constants  what was measured or chosen, side by side
"""
