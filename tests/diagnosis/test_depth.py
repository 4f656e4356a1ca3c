"""Pre-norm stacks are named and routed to their learner; post-norm ones and other attention are refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import unsoftmax as us
from tests.diagnosis.targets import softmax
from unsoftmax.diagnosis import allowance

STACKS = {
    "two layers": {},
    "RMSNorm, causal": {"norm": "rms", "causal": True},
    "networks": {"network": 16},
    "gated networks, causal": {"network": 16, "gated": True, "causal": True, "layers": 3},
    "one layer and a network": {"network": 16, "layers": 1},
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("dim", [8, 14])
def test_stacks_are_named(name, dim) -> None:
    target = us.oracle(us.models.AttentionStack.random(dim, **({"layers": 2, "seed": dim} | STACKS[name])))
    found = us.diagnose(target)
    assert (found.family, found["networks"]) == ("attention stack", "network" in name)
    assert isinstance(found.learner, us.learners.AttentionStack)
    assert found.usage.billed <= allowance(target.spec)


def test_a_stack_is_recovered_without_being_told() -> None:
    stack = us.models.AttentionStack.random(8, layers=2, heads=2, head_dim=2, seed=1)
    recovery = us.recover(us.oracle(stack))
    assert us.models.distance(recovery.model, stack) < 1e-10


def encoder(norm_first: bool, layers: int):
    torch = pytest.importorskip("torch")

    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    stack = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    return us.adapters.torch_module(stack.eval(), dim=16)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_stock_encoder_is_a_stack_if_its_norms_come_first(layers) -> None:
    assert us.diagnose(encoder(True, layers)).family == "attention stack"
    behind = us.diagnose(encoder(False, layers))
    assert (behind.family, behind.code, behind["norm last"]) == ("outside", "norm behind", True)


def two_layers(weigh, gate=None, turn=0.0):
    """Two pre-norm layers with residuals whose weights are `weigh` of the scores."""
    rng = np.random.default_rng(4)
    W, P, G = rng.standard_normal((3, 2, 12, 12)) / 4

    def target(X):
        for w, p, g in zip(W, P, G, strict=True):
            Z = X / np.sqrt((X**2).mean(axis=2, keepdims=True) + 1e-5)
            far = np.arange(X.shape[1])
            s = np.einsum("bmd,de,bne->bnm", Z, w, Z) - turn * np.abs(far[:, None] - far)
            Y = weigh(s) @ Z @ p
            X = X + (Y * expit(Z @ g) if gate else Y)
        return X[:, -1]

    return us.oracle(target, 12, outputs=12)


def normalised(a):
    return a / a.sum(axis=-1, keepdims=True)


FOREIGN = {
    "sigmoid weights": lambda: two_layers(expit),
    "normalised sigmoid": lambda: two_layers(lambda s: normalised(expit(s))),
    "squared ReLU": lambda: two_layers(lambda s: np.maximum(s, 0.0) ** 2),
    "capped scores": lambda: two_layers(lambda s: softmax(2 * np.tanh(s / 2))),
    "a gate": lambda: two_layers(softmax, gate=True),
    "positions": lambda: two_layers(softmax, turn=0.3),
}


def test_the_same_layers_with_softmax_are_a_stack() -> None:
    assert us.diagnose(two_layers(softmax)).family == "attention stack"


@pytest.mark.parametrize("name", FOREIGN)
def test_stacks_of_other_attention_stay_outside(name) -> None:
    target = FOREIGN[name]()
    found = us.diagnose(target)
    assert (found.family, found.learner) == ("outside", None)
    assert found.usage.billed <= allowance(target.spec)


def test_a_final_norm_is_refused_by_name() -> None:
    found = us.diagnose(us.oracle(us.models.AttentionStack.random(12, 2, 2, final_norm=True, seed=3)))
    assert (found.family, found.code, found["affine before the norm"]) == ("outside", "norm behind", False)
