"""Programs meet oracles here, in reading order.

recovery      `recover`: oracle in, verified model out
estimate      `estimate`: what that will cost, before anything is asked
attempt       one attempt: the program, the verification, and what any ending can report
lawful        what no softmax heads do, or none without affine terms, asked of a target that contradicts those learned
twin          what an exact layer of the recovered weights shows when it is learned as the target was
formats       how answers are written, where that is coarser than declared
engine        one round after the other, in chunks
surroundings  ledger, workers and version around a run
progress      what people see while it runs
"""
