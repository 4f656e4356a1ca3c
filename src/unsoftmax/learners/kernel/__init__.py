"""Parts of `KernelHead`, in reading order.

first_look  is the kernel 0 at a score of 0?
reading     one number log kappa(t) / kappa(0) at t = a'Wb from a pair of tokens, normalised or not
kernels     the table along one line, and the kernel it shows
powers      kernels that are 0 at 0: powers of the score, in plain sums and in normalised weights
degree      what one answer shows of them, ratios of scores; and which power
constants   what was measured or chosen, side by side
"""
