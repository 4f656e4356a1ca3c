"""Two-layer ReLU networks from value queries alone: great circles, cell gradients, peel and polish.

Stands in for the network learner that Section 4.1 assumes. Width unknown, any signs, m beyond d.

Theory: docs/theory/relu-network.md, "ReLU networks", statement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import DomainError
from unsoftmax.inversion import shown_rounding
from unsoftmax.learners.core.acceptance import SCALARS, check
from unsoftmax.learners.core.base import NETWORK_RESIDUAL, Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.costs import WIDE, network_range
from unsoftmax.learners.core.reductions import homogenised, overheard, representable, rescaled
from unsoftmax.learners.relu import noise
from unsoftmax.learners.relu.peel import Peeled, learn_homogeneous, refuse_if_unexplained
from unsoftmax.models.relu_network import ReluNetwork as Network
from unsoftmax.probes.base import Array
from unsoftmax.probes.scales import power_of_two
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.cells import distinct, orientation
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class ReluNetwork:
    """Learn g(x) = w_o . ReLU(A'x) from one-row queries, about 1.1 to 1.5 for each of its m d unknowns.

    bias=True: g(x) = w_o . ReLU(A'x + b) + lin . x + b_o, as the bias-free network s g(x / s) in d + 1 dimensions.
    Neurons with the same kink are one neuron to every query and come out merged; which way a neuron points is known
    where the linear part tells (`m` up to about d + 14), otherwise a linear part `lin` stands for it.
    """

    bias: bool = False

    accepts = SCALARS

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if self.bias and spec.domain.max_norm is not None:
            raise DomainError(
                f"ReluNetwork(bias=True) follows straight lines to where no kink is left and max_norm is "
                f"{spec.domain.max_norm}; kinks outside that ball cannot be seen. Lift the limit, or use bias=False "
                "for a homogeneous network."
            )
        return Forecast(
            {"pilot": noise.queries(self.bias)},
            ranges={"network": network_range(spec.dim + self.bias)},
            supposing=WIDE,
            model=Network,
        )

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._program(spec, seed)

    def _program(self, spec: OracleSpec, seed: int) -> Program:
        found = yield from found_network(spec, seed, self.bias)
        refuse_if_unexplained(found)
        model, note = as_network(found, self.bias)
        return Outcome(model, (note,), allows=Allowance(network=residual_claim(found)))


def found_network(spec: OracleSpec, seed: int, bias: bool) -> Asking[Peeled]:
    """The network's cells, asked by one-row probes inside the domain and in the target's number format."""
    length = power_of_two(min(1.0, spec.domain.norm_limit / 1.25))
    dim = spec.dim + 1 if bias else spec.dim
    seen: list[Array] = []

    def rounding() -> tuple[float, float]:
        # Neighbours share an answer of few digits, so their differences do not show them; the answers do.
        absolute, relative = shown_rounding(np.concatenate(seen))
        return max(spec.tolerance, absolute) / length, max(spec.eps, relative)

    program = learn_homogeneous(dim, bias, rounding, seed)
    program = homogenised(program) if bias else rescaled(program, length)
    return (yield from overheard(representable(program, spec.dtype), seen))


def residual_claim(found: Peeled) -> Claim:
    """What the fresh answers say about the error anywhere."""
    return Claim(
        NETWORK_RESIDUAL,
        found.bound,
        found.residual,
        statement=f"relative to the function's root mean square, from {len(found.gaps)} fresh vectors",
    )


def _merged(found: Peeled) -> tuple[Array, Array, Array]:
    """Neurons that noise cannot tell apart as one, unless fresh answers tell them apart after all."""
    net = found.net
    allowed = max(3 * found.residual + 30 * found.sigma / found.scale, found.expected)
    for share in (1.0, 1e-3):
        U, s, lin = distinct(net, share)
        gaps = found.y - np.maximum(found.x @ U.T, 0) @ s - found.x @ lin
        if np.abs(gaps).max() <= allowed * found.scale:
            return U, s, lin
    return net.U, net.s, net.lin


def as_network(found: Peeled, bias: bool) -> tuple[Network, str]:
    """The found function as a model, without a linear part where the neurons' orientation can be told."""
    net = found.net
    U, s, lin = _merged(found)
    size = np.linalg.norm(U, axis=1)
    order = np.argsort(-size, kind="stable")
    U, s = U[order], s[order]
    d = U.shape[1] - 1 if bias else U.shape[1]
    tolerance = max(1e-7, 1e3 * net.error / max(float(size.max(initial=0.0)), 1e-300))
    bits = orientation(U[:, :d], s, lin[:d], min(tolerance, 1e-3))
    width = f"{len(s)} neurons"
    if bits is not None:
        lin = lin + (s[bits, None] * U[bits]).sum(axis=0)
        U = np.where(bits[:, None], -U, U)
        note = f"{width}; the direction of each is determined, and the form has no linear part."
    else:
        note = (
            f"{width} and a linear part: more neurons than the linear part can orient, so each is given up to its "
            "direction, ReLU(u) = u + ReLU(-u); the function is the same."
        )
    A, linear = U[:, :d].T, None if bits is not None else lin[:d]
    if not bias:
        return Network(A, s, lin=linear), note
    return Network(A, s, U[:, -1], float(lin[-1]), linear), note
