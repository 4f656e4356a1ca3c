"""What every family of learners shares; the other rooms import this one and themselves.

base         what a learner, a program, an outcome and a forecast are
costs        what steps that depend on the target take, at least and at most
acceptance   what a learner takes: answers as its class declares, hyper-parameters as annotated
reductions   the paper's reductions: functions from program to program
driver       the one way to run a program inside another, and several as one
settling     what designs follow from stays the same when a run is resumed elsewhere
noise        how noisy is the oracle: a measurement before anything is read off an answer
law          scores affine in a token, weights that add up to 1: refusals of others in words
links        programs behind an output link that cannot show every f
readable     the scale at which scores show, and entries asked again until they do
cross        columns until nothing new shows, then rows: one scheme for every access to entries of W
pair_logits  logits of token pairs with error radii; steep and saturated pairs are asked again
constants    what was measured or chosen, side by side
"""
