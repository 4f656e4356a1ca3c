"""PyTorch modules as targets, and recovered layers against them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import unsoftmax as us
from tests.learners.rates import few_above, within_promises
from unsoftmax.models.layer_distance import layer_gaps
from unsoftmax.probes.base import Probes

torch = pytest.importorskip("torch")
nn = torch.nn


def multihead(dim=24, heads=3, seed=0, biases=True, dtype=torch.float64, **rest):
    torch.manual_seed(seed)
    module = nn.MultiheadAttention(dim, heads, dtype=dtype, **rest).eval()
    if biases:
        with torch.no_grad():
            module.in_proj_bias.normal_(std=0.2)
            module.out_proj.bias.normal_(std=0.2)
    return module


def truth(module):
    """The module's weights as a reference layer."""
    W, b = (p.detach().numpy().astype(np.float64) for p in (module.in_proj_weight, module.in_proj_bias))
    parts = list(zip(np.split(W, 3), np.split(b, 3), strict=True))
    out = tuple(p.detach().numpy().astype(np.float64) for p in (module.out_proj.weight, module.out_proj.bias))
    return us.models.AttentionLayer.from_projections(*parts, out, module.num_heads)


class Twice(nn.Module):
    """Any module: a layer of its own, for every position."""

    def __init__(self, attention, mask=None, result=lambda y: y):
        super().__init__()
        self.attention, self.mask, self.result = attention, mask, result

    def forward(self, tokens):
        mask = None if self.mask is None else self.mask(tokens.shape[1])
        return self.result(self.attention(tokens, tokens, tokens, need_weights=False, attn_mask=mask)[0])


def answers(oracle, X):
    return oracle(Probes(X))


@pytest.mark.parametrize("batch_first", [True, False])
def test_self_attention_at_the_last_position(batch_first):
    module = multihead(batch_first=batch_first)
    X = np.random.default_rng(0).standard_normal((5, 4, 24))
    oracle = us.adapters.torch_module(module)
    assert (oracle.spec.dim, oracle.spec.outputs, oracle.spec.dtype) == (24, 24, "float64")
    assert np.allclose(answers(oracle, X), truth(module)(X), atol=1e-12)


@pytest.mark.parametrize("position", [0, 1, -2, "first", "last"])
def test_any_position_answers_for_the_query_token(position):
    module = multihead(batch_first=True)
    X = np.random.default_rng(0).standard_normal((5, 4, 24))
    for target in (module, Twice(module)):
        oracle = us.adapters.torch_module(target, 24, position=position)
        assert np.allclose(answers(oracle, X), truth(module)(X), atol=1e-12)
        assert np.allclose(answers(oracle, X[:, :1]), truth(module)(X[:, :1]), atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layers_give_their_attention_or_their_block(norm_first):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(24, 3, batch_first=True, norm_first=norm_first, dtype=torch.float64).eval()
    X = np.random.default_rng(0).standard_normal((5, 4, 24))
    attention = truth(layer.self_attn)
    part = us.adapters.torch_module(layer, part="attention")
    assert np.allclose(answers(part, X), attention(X), atol=1e-12)
    assert (part.spec.part, part.spec.position) == ("attention", -1)
    inner = us.adapters.torch_module(nn.Sequential(layer).eval(), part="0.self_attn")
    assert np.allclose(answers(inner, X), attention(X), atol=1e-12)
    block = us.models.AttentionLayer(
        **{name: getattr(attention, name) for name in ("K", "Q", "c", "O", "V", "constant")},
        residual=True,
        norm="pre" if norm_first else "post",
        eps=1e-5,
    )
    assert np.allclose(answers(us.adapters.torch_module(layer, part="block"), X), block(X), atol=1e-12)


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_module_answers_as_itself_unless_a_part_is_named(batch_first):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(24, 3, batch_first=batch_first, dtype=torch.float64).eval()
    X = np.random.default_rng(0).standard_normal((5, 4, 24))
    with torch.no_grad():
        whole = layer(torch.from_numpy(X if batch_first else X.swapaxes(0, 1))).numpy()
    for position in (-1, 0):
        oracle = us.adapters.torch_module(layer, position=position)
        moved = X if position == -1 else np.roll(X, -1, axis=1)
        wanted = whole[:, position] if batch_first else whole[position]
        assert np.allclose(answers(oracle, moved), wanted, atol=1e-12)
        assert (oracle.spec.part, oracle.spec.position) == (None, position)
    # It is no attention layer: nothing may be sold as its copy, and the refusal says which parts can be asked.
    for learner in (None, us.learners.AttentionLayer()):
        with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)) as refused:
            us.recover(us.adapters.torch_module(layer), learner)
        assert any("part='attention' or 'block'" in note for note in refused.value.__notes__)


def test_the_result_says_which_part_was_asked_and_where(tmp_path):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, batch_first=True, dtype=torch.float64).eval()
    oracle = us.adapters.torch_module(layer, part="attention", position="first", name="my layer")
    recovery = us.recover(oracle, us.learners.AttentionLayer())
    scope = recovery.certificate.scope
    assert (scope.target, scope.part, scope.position) == ("my layer", "attention", 0)
    assert scope.norms[0] > 0
    assert scope.lengths[0] == 1
    words = "my layer, its part 'attention', at the first position"
    assert any(words in note for note in recovery.notes)
    assert words in str(recovery.certificate)
    assert repr(recovery).count(words) == 1
    assert words.replace("'", "&#x27;") in us.report.recovery_page(recovery)
    recovery.save(tmp_path / "copy.safetensors")
    assert us.load(tmp_path / "copy.safetensors").certificate == recovery.certificate


@pytest.mark.parametrize(
    ("preset", "dtype", "error", "gap"),
    [("lean", torch.float64, 1e-7, 1e-6), ("robust", torch.float32, 1e-2, 1e-3)],
)
@pytest.mark.parametrize("biases", [False, True])
def test_recovered_module_equals_the_target(preset, dtype, error, gap, biases):
    module = multihead(64, 4, seed=2, biases=biases, dtype=dtype, batch_first=True)
    recovery = us.recover(us.adapters.torch_module(module), us.learners.AttentionLayer(preset=preset))
    gaps = layer_gaps(recovery.model, truth(module))
    assert max(gaps["W"], gaps["c"]) < error
    X = torch.randn(1000, 9, 64, dtype=dtype, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        wanted = module(X, X, X, need_weights=False)[0]
        got = recovery.model.to_torch()(X, X, X, need_weights=False)[0]
    assert got.dtype == dtype
    assert float((got - wanted).abs().max() / wanted.abs().max()) < gap


@pytest.mark.long
@pytest.mark.parametrize(("dim", "heads", "lean"), [(64, 4, 1.6), (256, 8, 1.25)])
@pytest.mark.parametrize(
    ("preset", "dtype", "error", "gap", "most"),
    [
        ("lean", torch.float64, 1e-7, 1e-6, None),
        ("robust", torch.float64, 1e-11, 1e-6, 3.4),
        ("robust", torch.float32, 1e-2, 1e-3, 3.4),
    ],
)
def test_modules_of_both_sizes(preset, dtype, error, gap, most, dim, heads, lean):
    """Default initialisation and perturbed biases, at the ratio and precision of every preset: a rate of six draws."""
    off, apart, cost, learner = [], [], [], us.learners.AttentionLayer(preset=preset)
    for biases, seed in itertools.product((False, True), range(11, 14)):
        module = multihead(dim, heads, seed=seed, biases=biases, dtype=dtype, batch_first=True)
        oracle = us.adapters.torch_module(module)
        recovery = us.recover(oracle, learner, seed=seed)
        within_promises(recovery, truth(module), oracle, learner)
        gaps = layer_gaps(recovery.model, truth(module))
        assert (recovery.model.heads, recovery.model.head_dim) == (heads, dim // heads)
        unknowns = us.theory.attention_layer_unknowns(dim, heads, dim // heads)
        X = torch.randn(1000, 9, dim, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            wanted = module(X, X, X, need_weights=False)[0]
            got = recovery.model.to_torch()(X, X, X, need_weights=False)[0]
        off.append(max(gaps["W"], gaps["c"]))
        apart.append(float(((got - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max()))
        cost.append(recovery.usage.billed * dim / unknowns)
    few_above(off, error, 1 / 6)
    few_above(apart, gap, 1 / 6)
    few_above(cost, most or lean, 1 / 6)


def test_causal_and_padding_masks_leave_the_last_position_alone():
    module = multihead(16, 2, batch_first=True)
    causal = Twice(module, mask=lambda n: torch.triu(torch.full((n, n), -torch.inf, dtype=torch.float64), 1))
    recovery = us.recover(us.adapters.torch_module(causal, 16, max_length=129), us.learners.AttentionLayer())
    assert us.models.distance(recovery.model, truth(module)) < 1e-9

    def padded(tokens):
        """The same attention on batches padded to a fixed length, the padding masked out."""
        X = torch.from_numpy(tokens)
        filler = torch.randn(len(X), 3, 16, dtype=X.dtype)
        mask = torch.zeros(len(X), X.shape[1] + 3, dtype=torch.bool)
        mask[:, X.shape[1] :] = True
        X = torch.cat([X, filler], dim=1)
        with torch.no_grad():
            y = module(X, X, X, key_padding_mask=mask, need_weights=False)[0]
        return y[:, tokens.shape[1] - 1].numpy()

    recovery = us.recover(us.oracle(padded, 16, outputs=16, max_length=129), us.learners.AttentionLayer())
    assert us.models.distance(recovery.model, truth(module)) < 1e-9


def test_a_module_that_shows_the_first_position_behind_a_causal_mask_is_refused():
    module = multihead(16, 2, batch_first=True)
    causal = Twice(module, mask=lambda n: torch.triu(torch.full((n, n), -torch.inf, dtype=torch.float64), 1))
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        us.recover(us.adapters.torch_module(causal, 16, position=0, max_length=65), us.learners.AttentionLayer())


REFUSED = {
    "training mode": (lambda: multihead(dropout=0.1).train(), {}, "eval"),
    "training mode inside": (lambda: nn.TransformerEncoderLayer(16, 2, batch_first=True), {}, "eval"),
    "half precision": (lambda: multihead(dtype=torch.float32).half(), {}, "float32"),
    "mixed precision": (lambda: Twice(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).double())), {"dim": 4}, "all"),
    "wrong dtype": (lambda: multihead(dtype=torch.float32), {"dtype": "float64"}, "float32"),
    "wrong embed_dim": (multihead, {"dim": 12}, "embed_dim is 24"),
    "wrong dim of any module": (lambda: nn.Linear(8, 8).eval(), {"dim": 12}, "Check `dim`"),
    "no dim": (lambda: nn.Identity(), {}, "`dim` is required"),
    "tuple": (lambda: Twice(multihead(batch_first=True), result=lambda y: (y, None)).eval(), {"dim": 24}, "select="),
    "other keys": (lambda: multihead(biases=False, kdim=12, vdim=12), {}, "cross-attention"),
    "hidden token": (lambda: multihead(add_bias_kv=True), {}, "hidden token"),
    "mean": (multihead, {"position": "mean"}, "mean over positions"),
    "position": (multihead, {"position": "middle"}, "`position`"),
    "part": (multihead, {"part": "all"}, "`part`"),
    "outputs": (multihead, {"outputs": 5}, "answers 24"),
    "no module": (lambda: np.tanh, {"dim": 3}, "torch.nn.Module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_do(name):
    make, options, message = REFUSED[name]
    with pytest.raises(us.errors.InvalidArgument, match=message):
        us.adapters.torch_module(make(), **options)


def test_select_picks_from_a_tuple_and_the_mode_is_left_as_it_was():
    module = Twice(multihead(batch_first=True), result=lambda y: (y, None)).train()
    X = np.random.default_rng(0).standard_normal((5, 4, 24))
    oracle = us.adapters.torch_module(module, 24, select=0)
    assert np.allclose(answers(oracle, X), truth(module.attention)(X), atol=1e-12)
    assert module.training


class Returning(torch.nn.Module):
    """A linear map whose result is wrapped by `wrap`."""

    def __init__(self, wrap):
        super().__init__()
        self.inner, self.wrap = torch.nn.Linear(6, 5), wrap

    def forward(self, x):
        return self.wrap(self.inner(x))


@pytest.mark.parametrize(
    ("wrap", "settings", "words"),
    [
        (lambda y: (y, y), {"select": 2}, "2 parts"),
        (lambda y: {"hidden": y}, {"select": "states"}, "'hidden'"),
        (lambda y: y, {"select": 0}, "one array"),
        (lambda y: y, {"outputs": 6}, "5 numbers"),
        (lambda y: y + 1j, {}, "complex"),
    ],
)
def test_what_a_module_returns_is_checked_before_a_query(wrap, settings, words):
    with pytest.raises(us.errors.InvalidArgument, match=words):
        us.adapters.torch_module(Returning(wrap), 6, **settings)


def test_a_module_without_values_is_refused():
    with pytest.raises(us.errors.InvalidArgument, match="meta"):
        us.adapters.torch_module(torch.nn.MultiheadAttention(8, 2, device="meta"))


def test_a_layer_with_a_norm_comes_out_in_eval_mode():
    assert not us.models.AttentionLayer.random(8, 2, norm="pre", seed=1).to_torch().training


def test_a_module_given_as_a_plain_function_is_refused_with_its_adapter() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="torch_module"):
        us.oracle(torch.nn.Linear(4, 1), 4)


class Scorer(nn.Module):
    """An attention layer and a score, as many classifiers have it."""

    def __init__(self, shape):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(6, 1, bias=False, batch_first=True, dtype=torch.float64)
        self.score = nn.Linear(6, 1, bias=False, dtype=torch.float64)
        self.shape = shape

    def forward(self, x):
        y = self.score(self.attention(x[:, -1:], x, x)[0])
        return y.reshape(len(x), *self.shape)


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_a_score_is_a_number_and_the_dimension_is_found(shape):
    oracle = us.adapters.torch_module(Scorer(shape).eval())
    assert oracle.spec.dim == 6
    assert oracle.spec.outputs is None
    recovery = us.recover(oracle)
    X = np.random.default_rng(0).standard_normal((5, 4, 6))
    assert np.allclose(recovery.model(X), oracle(Probes(X)), atol=1e-9)
