"""Models from recorded traffic: no query is chosen, none is asked.

log          the records: sequences or ids, answers, what is declared about their noise; logs from files
blocks       records side by side in blocks of similar length
shape        which unknowns a model of heads has, as one vector
heads        heads on those records as a least-squares problem
mixture      starts for hot heads
search       descents from one attempt after the other until one arrives
recipes      which starts to try for which class, those for several heads among them
choice       number of heads and rank where they are not given
noise        what noise the answers carry
copies       records that ask nearly the same, counted once
settle       the last digits, unseen directions at 0
directions   what the records determine: singular directions of J over the noise
sampled      the same for large logs, from draws of the errors
spans        what the tokens never vary
narrowing    fits in the coordinates that tokens span
picks        argmax attention, the limit of large W
lack_of_fit  features of other classes that would explain the residual
verdict      recovered, consistent or a surrogate; the claim about records like these
rivals       another W that explains the records as well: errors reach both
result       from unknowns to a Recovery
fit          all of it in order; held-out error against records used, a line for people
constants    what was measured or chosen, side by side
"""

from unsoftmax.fitting.fit import fit
from unsoftmax.fitting.log import Log

__all__ = ["Log", "fit"]
