"""ReLU networks on one token, with and without biases."""

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case, network_behind, two_heads


class Smooth:
    """A network whose activation is smooth."""

    dim = 6

    def __init__(self, activation, bias=False):
        self.net, self.activation = us.models.ReluNetwork.random(self.dim, 8, bias=bias, seed=4), activation

    def __call__(self, tokens):
        return self.activation(tokens[:, -1] @ self.net.A) @ self.net.w_o


def deep(dim=6):
    rng = np.random.default_rng(3)
    A, B, w = rng.standard_normal((dim, 8)), rng.standard_normal((8, 8)), rng.standard_normal(8)

    def network(tokens):
        return np.maximum(np.maximum(tokens[:, -1] @ A, 0) @ B, 0) @ w

    network.dim = dim
    return network


OUTSIDE = {
    "softplus": lambda: Smooth(lambda u: np.logaddexp(0, u)),
    "tanh": lambda: Smooth(np.tanh),
    "three layers": deep,
    "two heads": two_heads,
    "attention in front": network_behind,
}

CASES = [
    Case(
        "ReluNetwork",
        us.learners.ReluNetwork(),
        lambda: us.models.ReluNetwork.random(5, 9, seed=1),
        1e-11,
        outside=OUTSIDE | {"biases": lambda: us.models.ReluNetwork.random(6, 8, bias=True, seed=4)},
    ),
    Case(
        "ReluNetwork-bias",
        us.learners.ReluNetwork(bias=True),
        lambda: us.models.ReluNetwork.random(4, 7, bias=True, seed=1),
        1e-11,
        outside=OUTSIDE,
    ),
]
