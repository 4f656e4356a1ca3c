"""Is the served model the one that was shipped, and if not, what changed? In reading order.

compare               `compare`: oracle and reference in, Comparison out
references            what the target should be: a model, a module, a file or a callable
heads                 the structure that heads and layers share
arithmetic            a model computed in other number formats and orders of operations
noise                 how far rounding may take an answer
designs               what to ask: near ties, single tokens, longer sequences
statistics            tails, bets and power
power                 the smallest change that would have been seen
row_space             an output layer as the reference
repeats               does a difference repeat nearby, as that of a weight does
detection             does it differ at all
explain               what changed, in the order that matters
state                 what is known while explaining, and the one way to ask further
scales                a scale, a shift, a temperature, a head removed
formats               number formats of weights
naming                which format explains the answers
signs                 weights or arithmetic: do differences repeat their sign
reading               from answers to the change of scores
localise              scalar heads: values, which heads, entries, low rank, or neither
head_words            what is said of their scores
values                changed values of scalar heads
sparse                changed entries
ranks                 is the rank low
low_rank              a low-rank change of a head, column by column
dense                 the size of a change, with an interval; of all heads of a layer
layers                layers with vector answers
layer_scores          low-rank changes of a layer's scores, all heads at once
layer_values          changes of its value or output projection
stored                any structure: which stored arrays changed
stored_fit            arrays fitted to answers by Gauss-Newton on the reference itself
stored_lean           large arrays: few entries, or a low rank
stored_words          what is said of them
monitor               `Monitor`: the comparison repeated, with one rate of false alarms for all calls; its file
constants             what was measured or chosen for asking, noise and detection
constants_explaining  the same for what explains a difference
constants_stored      the same for stored arrays
"""

from unsoftmax.comparing.compare import compare
from unsoftmax.comparing.monitor import Monitor, Step

__all__ = ["Monitor", "Step", "compare"]
