"""Parts of `KernelHead`, in reading order.

reading   one number log kappa(t) / kappa(0) at t = a'Wb from a pair of tokens, normalised or not
kernels   the table along one line, and the kernel it shows
"""
