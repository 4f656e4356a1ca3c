"""Multi-head attention, one idea per file.

ground          the sum of the values, the noise, the pair query the rest stands on; targets that see order are told
circle          a half circle along which every head is off or on, and the head with W = 0, which never is
discovery       heads appear as jumps of a saturated answer along a half circle
units           all heads at one query token: a small nonlinear fit
isolation       probes orthogonal to the other heads' values see one head alone
ranks           how many columns of a W answers with noise show
three_tokens    the few directions isolation cannot reach
lifted          key offsets and a constant as one dimension more
assembly        all of it as matrices, the other heads' part taken away
checks          columns that came out wrong: answers that no solve uses, and what noise leaves of them
reading         the order in which this is asked, checked and asked again; columns whose check does not come out
saturation      values from the arcs between jumps, W of isolated heads, and the values once more, directly
bounded         heads without saturation: a fit, for short tokens and for heads that saturation cannot part
polish          spare queries where they say most, and the last digits
records         everything asked, for fits that use all of it
rational        poles in the repetition ratio, for few heads
constants       what was measured or chosen, side by side
constants_fits  the same for fits
"""
