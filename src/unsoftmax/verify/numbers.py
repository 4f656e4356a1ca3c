"""One number per sequence: exact answers are held against rounding, noisy ones against what the learner states.

Theory: docs/theory/verification.md, "Near ties".
"""

from __future__ import annotations

from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.models.base import Model
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.spec import OracleSpec
from unsoftmax.verify import powers, precision, values
from unsoftmax.verify.plan import Checked, Count, Plan, exactly


def check(model: Model, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """By `values`, or by `precision` where the learner states one."""
    if allows.precision is not None:
        return precision.check(model, spec, seed, allows.precision)
    return values.check(model, spec, seed, allows)


def _behind_network(spec: OracleSpec, heads: Count) -> Count:
    """A learned network is tested at one size of tokens, one that was given at all of them."""
    return values.queries(spec, network=True), values.queries(spec)


def _of_any_kernel(spec: OracleSpec, heads: Count) -> Count:
    """Before the kernel is known it may be a power of the score."""
    usual, (fewest, most) = values.queries(spec), powers.count(spec)
    return min(usual, fewest), max(usual, most)


def _check_kernel(model: KernelHead, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Weights that may cancel or be 0 need sequences drawn for them."""
    return (powers if model.kernel.zero_at_zero else values).check(model, spec, seed, allows)


PLAN = Plan(exactly(values.queries), check)
BEHIND_NETWORK = Plan(_behind_network, check)
KERNELS = Plan(_of_any_kernel, _check_kernel)
