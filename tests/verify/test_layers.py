"""Vector answers: the sequences that a verification asks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import unsoftmax as us
from unsoftmax.learners.core.base import Allowance, Settled
from unsoftmax.verify import layers


def test_a_verification_that_is_resumed_asks_the_same_sequences():
    """Tokens made of the model are rounded to float32, and its last digits decide which way."""
    target = us.models.AttentionLayer.random(16, 2, 4, seed=1)
    spec = us.oracle(target).spec

    def asked(model, settled):
        """All tokens, and what was settled; `settled` before, in order, if anything was."""
        program, tokens, own = layers.check(model, spec, 0, Allowance()), [], []
        request = next(program)
        while True:
            try:
                if isinstance(request, Settled):
                    own.append(request.value)
                    request = program.send(settled[len(own) - 1] if settled else request.value)
                else:
                    tokens.append(request.tokens.ravel())
                    request = program.send(target(request.tokens))
            except StopIteration:
                return np.concatenate(tokens), own

    whole, settled = asked(target, [])
    elsewhere = replace(target, K=target.K * (1 + 1e-9))
    assert np.array_equal(asked(elsewhere, settled)[0], whole)
    assert not np.array_equal(asked(elsewhere, [])[0], whole)
