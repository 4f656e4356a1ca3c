"""SOLVE, pure: arrays in, arrays out; one problem per file. In reading order, by what is solved.

Least squares:
gauss_newton      damped Gauss-Newton: residuals, Jacobian products, damping, preconditioner
chord             the same, with normal equations that are kept while they serve
blocks            many noisy answers at once, none inverted
placement         where spare queries say most

Ranks and ranges:
singular          singular values where LAPACK's first way gives up
subspace          ranks, ranges and supports of noisy matrices by singular values
row_space         the rank of noisy rows whose noise is unknown
softcap           a cap, by the low rank that it hides
block_diagonal    finest simultaneous block diagonalisation
projective        vectors known up to scale
ellipsoid         the ellipsoid on which points lie

One head:
cross             a low-rank matrix from a few columns and rows
skeleton          M = C G^-1 R
noisy_cross       the cross under noise
rank_one          rank-one measurements: nuclear norm, alternation
bilinear          W from bilinear readings
kernel_match      which kernel a table shows

Labels:
bisection         many numbers at once from yes or no
beliefs           the same where answers are flipped
exponential_sums  how many exponentials, and which

Several heads, one number:
sigmoid_units     heads seen from one query token
heads_fit         heads as a least-squares problem
rational          heads as poles
parting           heads by how their gradients change

Networks:
sinusoids         a piecewise linear function between two kinks of a great circle
cells             cell gradients, and their correction
segments          a known network along segments, inverted
neurons_apart     neurons from Jacobians

Layers:
pencil            heads as clusters of eigenvalues
mixture           a sum of maps with known ranges, split
mixing_newton     ranges and key directions together, at one query token
sum_table         heads by a table of sums
score_roots       one unknown score per head
low_rank_members  heads as what is of low rank in a span
eliminated_values  scores by Gauss-Newton, what is written eliminated
sigmoid_mixtures  heads that share values, by their logits
shift_operator    rotary frequencies from one step of distance
normed_features   linear maps behind a norm
weighted          least squares, every equation over its own error
capped            soft-capped scores

Stacks:
head_separation   heads by algebra alone
logit_fit         heads at one displacement, from a neighbour
star              W, c and P from neighbouring displacements
layer_order       which head feeds which
stack_heads       heads in factors, and what they answer
stack_models      two models of a stack for Gauss-Newton
stack_newton      normal equations in parts
plain_stack       stacks without norms

Token ids:
gap_cross         cross approximation of gaps
position_offset   what the last position is worth
embedding         from gaps to W on known embeddings
denominators      heads by their softmax denominators
replaced_token    another token in the same place
circuit_newton    least squares over known embeddings
"""
