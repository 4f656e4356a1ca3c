"""Begin a run with a ledger, interrupt it, and finish it elsewhere: run as a child process per kind of processor.

python -m tests.contracts.resuming begin|finish FOLDER SEEDS CASE...   prints, when finishing, one JSON line per run.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.number_formats import worst_of_stated
from benchmarks.subjects import SUBJECTS, Subject
from tests.contracts.cases.served_layer import llama
from tests.contracts.registry import Case, collect, two_heads
from tests.llamas import attention_of
from unsoftmax.serving.llama import Llama

SHARES = (0.6, 0.3, 0.9)
"""Parts of a run that are paid for when it is interrupted; seeds take them in turn."""

BATCH = 16
"""Sequences per call: an interruption loses nothing but the call in flight."""


@dataclass(frozen=True)
class Job:
    """Something that asks with a ledger: what it asks for a seed, and `act`, a verdict and how far the model is off."""

    name: str
    target: Callable[[int], Any]
    oracle: Callable[[Any], Any]
    act: Callable[..., tuple[str, float]]
    error: float = 0.0


def recovering(case: Case) -> Job:
    """The learner of a contract case."""

    def act(oracle: Any, target: Any, **given: Any) -> tuple[str, float]:
        found = us.recover(oracle, case.learner, **given)
        return found.status.name, us.models.distance(found.model, target)

    return Job(case.name, lambda seed: case.target(), case.oracle, act, case.error)


def drawn(subject: Subject) -> Job:
    """A learner before a target of its own for every seed; how far off it is, is counted in errors that it states."""

    def act(oracle: Any, target: Any, **given: Any) -> tuple[str, float]:
        try:
            found = us.recover(oracle, subject.learner, **given)
        except us.errors.UnsoftmaxError as refusal:
            return type(refusal).__name__, 0.0
        return found.status.name, worst_of_stated(found, subject.truth(target))

    return Job(f"drawn, {subject.name}", subject.target, lambda fn: subject.oracle(fn, np.asarray, {}), act, 1.0)


def comparing(name: str, reference: Callable[[], Any], change: Callable[[Any], Any]) -> Job:
    """A served model held against the one that was shipped."""

    def act(oracle: Any, target: Any, **given: Any) -> tuple[str, float]:
        found = us.compare(oracle, reference(), **given)
        return found.verdict, 0.0

    return Job(name, lambda seed: change(reference()), us.oracle, act)


def head() -> Any:
    """A head whose weights have no last digits, so that every processor makes the same."""
    model = us.models.SingleHead.random(8, norm=2.0, seed=1)
    return us.models.SingleHead(*(part.astype(np.float32).astype(float) for part in (model.W, model.v)))


def unchanged(model: Any) -> Any:
    return model


def one_entry(model: Any) -> Any:
    W = model.W.copy()
    W[2, 3] += 1e-3
    return us.models.SingleHead(W, model.v)


def rank_one(model: Any) -> Any:
    return us.models.SingleHead(model.W + 1e-3 * model.W[:, :1] @ model.W[:1], model.v)


def in_short(model: Any) -> Any:
    """The same with parameters that have no last digits."""
    short = {k: v.astype(np.float32).astype(float) for k, v in vars(model).items() if isinstance(v, np.ndarray)}
    return replace(model, **short)


def louder(model: Any) -> Any:
    """The keys of one head, a thousandth larger."""
    K = model.K.copy()
    K[0] *= 1.001
    return replace(model, K=K)


class Block:
    """A one-layer language model that shows its logits, or its stream."""

    accepts_counts = False

    def __init__(self, shows: str = "logits") -> None:
        self.model, self.shows = Llama.random(32, 48, 1, 4, 2, seed=1), shows
        self.dim, self.outputs = 32, 48 if shows == "logits" else 32

    def __call__(self, tokens: Any, counts: Any = None) -> Any:
        return self.model.logits(tokens) if self.shows == "logits" else self.model.stream(tokens)[:, -1]


def behind_a_network(shows: str) -> Job:
    """The attention of a block, from behind its network."""

    def act(oracle: Any, target: Any, **given: Any) -> tuple[str, float]:
        found = us.recover(oracle, us.learners.AttentionLayer(), **given)
        return found.status.name, us.models.distance(found.model, attention_of(target.model))

    return Job(f"LayerBehind-{shows}", lambda seed: Block(shows), us.oracle, act, 1e-4)


def layer(name: str, **rest: Any) -> Job:
    """A layer of a language model, with what its way of scoring adds."""
    return recovering(Case(f"AttentionLayer-{name}", us.learners.AttentionLayer(), lambda: llama(**rest), 1e-6))


BESIDE = [
    recovering(Case("no learner", None, head, 1e-11)),
    recovering(Case("no learner, heads", None, two_heads, 1e-10)),
    recovering(Case("no learner, layer", None, llama, 1e-6)),
    comparing("compare, same", head, unchanged),
    comparing("compare, one entry", head, one_entry),
    comparing("compare, rank one", head, rank_one),
    comparing("compare, layer", lambda: in_short(llama()), louder),
    behind_a_network("logits"),
    behind_a_network("stream"),
    layer("alibi", positions=us.models.Alibi(2.0 ** -np.arange(1.0, 5.0))),
    layer("sinks", sinks=True),
    layer("window", window=12),
    layer("soft-cap", softcap=20.0),
    layer("normed-keys", qk_norm=True),
    layer("filling", kv_groups=None),
    layer("no-positions", positions=None),
]
"""What asks and is no learner, and what is too long for the contracts: ways of their own through a learner."""


def jobs() -> list[Job]:
    """Every contract case but one, Theorem B.1, which asks 74,000 sequences on a grid; others beside; drawn targets."""
    cases = [recovering(case) for case in collect() if case.name != "Membership-paper"]
    return [*cases, *BESIDE, *map(drawn, SUBJECTS)]


class Interrupted:
    """A target that is gone after `limit` sequences."""

    def __init__(self, target: Any, limit: int | None = None) -> None:
        self.target, self.limit, self.received = target, limit, 0
        self.accepts_counts = getattr(target, "accepts_counts", True)
        self.dim, self.outputs = target.dim, getattr(target, "outputs", None)
        if hasattr(target, "vocabulary"):
            self.vocabulary, self.length = target.vocabulary, getattr(target, "length", None)

    def __call__(self, tokens: Any, counts: Any = None) -> Any:
        if self.limit is not None and self.received + len(tokens) > self.limit:
            raise KeyboardInterrupt
        self.received += len(tokens)
        return self.target(tokens, counts)


def keep(target: Any, place: Path) -> Any:
    """A target as every processor will find it: its own last digits would be another target's elsewhere."""
    if isinstance(target, us.models.Model):
        target.save(place.with_suffix(".model"))
    else:
        place.with_suffix(".pickle").write_bytes(pickle.dumps(target))
    return kept(place)


def kept(place: Path) -> Any:
    if (model := place.with_suffix(".model")).exists():
        return us.models.load(model)
    return pickle.loads(place.with_suffix(".pickle").read_bytes())


def oracle_of(job: Job, target: Any) -> Any:
    """The job's oracle of a target, in small calls."""
    oracle = source = job.oracle(target)
    while hasattr(source, "inner"):
        source = source.inner
    object.__setattr__(source, "spec", replace(source.spec, max_batch=BATCH, name="resumed"))
    return oracle


def begin(job: Job, seed: int, place: Path) -> None:
    """Part of a run; the target is kept too."""
    target = keep(job.target(seed), place)
    # With a ledger too, which answers what is asked twice: what is paid again must not hide behind it.
    counting = Interrupted(target)
    verdict, _ = job.act(oracle_of(job, counting), target, seed=seed, ledger=place.with_suffix(".whole.db"))
    whole = counting.received
    gone = Interrupted(target, int(SHARES[seed % len(SHARES)] * whole))
    try:
        job.act(oracle_of(job, gone), target, seed=seed, ledger=place.with_suffix(".db"))
    except KeyboardInterrupt:
        before = {"whole": whole, "first": gone.received, "before": verdict}
        place.with_suffix(".json").write_text(json.dumps(before))


def finish(job: Job, seed: int, place: Path) -> dict[str, Any]:
    """The rest; `again` counts what was paid beyond a run in one piece."""
    before = json.loads(place.with_suffix(".json").read_text())
    target = kept(place)
    counting = Interrupted(target)
    verdict, error = job.act(oracle_of(job, counting), target, seed=seed, ledger=place.with_suffix(".db"))
    again = before["first"] + counting.received - before["whole"]
    return {
        "case": job.name,
        "seed": seed,
        **before,
        "again": again,
        "after": verdict,
        "error": error,
        "bar": job.error,
    }


def main(what: str, folder: str, seeds: str, names: list[str]) -> None:
    for job in jobs():
        for seed in map(int, seeds.split(",")):
            place = Path(folder) / f"{job.name}-{seed}"
            if names and job.name not in names:
                continue
            if what == "begin":
                begin(job, seed, place)
            elif place.with_suffix(".json").exists():
                sys.stdout.write(json.dumps(finish(job, seed, place)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
