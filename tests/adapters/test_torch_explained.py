"""PyTorch modules that explain their answers: gradients by autograd, weights as nn.MultiheadAttention gives them."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.probes.base import Probes

torch = pytest.importorskip("torch")


class Head(torch.nn.Module):
    """One softmax head that answers with a number."""

    def __init__(self, model: us.models.SingleHead, dtype: str = "float64") -> None:
        super().__init__()
        self.W = torch.nn.Parameter(torch.tensor(model.W, dtype=getattr(torch, dtype)))
        self.v = torch.nn.Parameter(torch.tensor(model.v, dtype=getattr(torch, dtype)))

    def forward(self, X):
        scores = torch.einsum("bnd,de,be->bn", X, self.W, X[:, -1])
        return (torch.softmax(scores, dim=1) * (X @ self.v)).sum(dim=1, keepdim=True)


@pytest.mark.parametrize(("learner", "rank"), [(us.learners.SingleHead(), None), (us.learners.LowRank(), 2)])
def test_gradients_by_autograd_give_the_head(learner, rank) -> None:
    head = us.models.SingleHead.random(12, rank=rank, norm=2.0, seed=1)
    target = us.adapters.torch_module(Head(head), 12, kind="gradient")
    recovery = us.recover(target, learner)
    assert us.models.distance(recovery.model, head) <= 1e-12
    assert recovery.usage.billed - recovery.usage.phases["verify"] <= (12 if rank is None else 2 * rank) + 8


def test_a_float32_module_keeps_the_stated_error() -> None:
    head = us.models.SingleHead.random(8, norm=2.0, seed=2)
    module = Head(head, "float32")
    exact = us.models.SingleHead(module.W.detach().double().numpy(), module.v.detach().double().numpy())
    recovery = us.recover(us.adapters.torch_module(module, 8, kind="gradient"), us.learners.SingleHead())
    stated = next(c.bound for c in recovery.certificate if c.name == "relative parameter error")
    assert us.models.distance(recovery.model, exact) <= stated <= 1e-2


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_weights_of_a_module_give_its_heads(batch_first) -> None:
    torch.manual_seed(3)
    module = torch.nn.MultiheadAttention(16, 2, batch_first=batch_first).double().eval()
    readout = np.random.default_rng(3).standard_normal(16)
    target = us.adapters.torch_module(module, kind="attention", readout=readout)
    recovery = us.recover(target, us.learners.MultiHead())
    assert recovery.model.heads == 2
    Q, K, V = (part.detach().numpy().reshape(2, 8, 16) for part in module.in_proj_weight.chunk(3))
    out = module.out_proj.weight.detach().numpy().reshape(16, 2, 8)
    true = us.models.MultiHead(
        np.einsum("hka,hkb->hab", K, Q) / np.sqrt(8), np.einsum("o,ohk,hka->ha", readout, out, V)
    )
    assert us.models.distance(recovery.model, true) <= 1e-11


def test_gradients_of_a_layer_are_those_of_its_readout() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double().eval()
    readout = np.arange(8.0)
    target = us.adapters.torch_module(layer, kind="gradient", readout=readout)
    X = np.random.default_rng(0).standard_normal((2, 3, 8))
    row = np.asarray(target(Probes(X)))
    step = 1e-6
    for n, k in ((0, 1), (2, 5)):
        moved = X.copy()
        moved[:, n, k] += step
        more = np.asarray(target(Probes(moved)))
        assert np.allclose((more[:, 0] - row[:, 0]) / step, row[:, 1 + 8 * n + k], atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"kind": "gradient"}, "readout"),
        ({"kind": "gradient", "readout": np.ones(3)}, "readout"),
        ({"kind": "gradient", "readout": np.ones(8), "position": "first"}, "position"),
        ({"kind": "attention", "readout": np.ones(8)}, "nn.MultiheadAttention"),
        ({"readout": np.ones(8)}, "readout"),
        ({"kind": "membership"}, "kind"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, match) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with pytest.raises(us.errors.InvalidArgument, match=match):
        us.adapters.torch_module(layer, **changes)
