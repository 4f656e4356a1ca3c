"""Recovery: files, summary, claims."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unsoftmax as us

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=1)


@pytest.fixture(scope="module")
def recovery():
    return us.recover(us.oracle(HEAD, name="head"), us.learners.SingleHead(), seed=5)


def test_a_saved_recovery_reads_back_whole(recovery, tmp_path) -> None:
    path = tmp_path / "r.safetensors"
    recovery.save(path)
    loaded = us.load(path)
    assert np.array_equal(loaded.model.W, recovery.model.W)
    assert loaded.usage == recovery.usage
    assert loaded.certificate == recovery.certificate
    assert loaded.status is us.Status.RECOVERED
    assert loaded.provenance == recovery.provenance
    assert loaded.provenance["seed"] == 5
    assert loaded.provenance["configuration"]["learner"] == "SingleHead"
    assert repr(loaded) == repr(recovery)
    assert np.array_equal(us.models.load(path).v, recovery.model.v)


def test_a_partial_recovery_can_be_saved_too(tmp_path) -> None:
    with pytest.raises(us.errors.BudgetExceeded) as error:
        us.recover(us.oracle(HEAD), us.learners.SingleHead(), budget=us.Budget(seconds=0.0))
    partial = error.value.recovery
    assert partial.model is None
    partial.save(tmp_path / "r.safetensors")
    assert us.load(tmp_path / "r.safetensors").status is us.Status.BUDGET_EXHAUSTED
    with pytest.raises(us.errors.FileFormatError, match="without a model"):
        us.models.load(tmp_path / "r.safetensors")


def test_summary_is_readable(recovery) -> None:
    text = repr(recovery)
    assert "recovered" in text
    assert f"{recovery.usage.billed} billed" in text
    assert "near ties: holds" in text


def test_every_status_has_a_remedy() -> None:
    assert all(status.remedy for status in us.Status)


def test_a_claim_fails_when_observed_exceeds_its_bound() -> None:
    assert us.Claim("x", 1.0, 0.5).holds
    assert not us.Claim("x", 1.0, 1.5).holds
    assert not us.Certificate(()).holds
    assert not us.Certificate((us.Claim("x", 1.0, None, basis="assumed"),)).holds


def test_nothing_holds_that_was_only_stated() -> None:
    """Without verification the bound of the learner stands alone: a wrong model has it as well."""
    two_heads = us.models.MultiHead.random(5, 2, norm=2.0, seed=0)
    unverified = us.recover(us.oracle(two_heads), us.learners.SingleHead(), verify=False)
    assert unverified.status is us.Status.UNVERIFIED
    assert len(unverified.certificate) > 0
    assert not unverified.certificate.holds
    assert "relative parameter error: stated" in repr(unverified)


def test_provenance_with_arrays_reads_back_whole(tmp_path) -> None:
    heads = us.models.MultiHead(np.stack([np.diag([2.0, 0.0]), np.diag([0.0, 1.0])]), np.eye(2))
    recovery = us.recover(us.oracle(heads), us.learners.OrthogonalHeads(bases=[np.eye(2)[:, :1], np.eye(2)[:, 1:]]))
    recovery.save(tmp_path / "r.safetensors")
    assert us.load(tmp_path / "r.safetensors").provenance == recovery.provenance


def test_a_header_that_lies_is_a_typed_error(recovery, tmp_path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "r.safetensors"
    for header in ("", "[]", "{}", json.dumps({"model": "SingleHead"}), "[" * 5000):
        save_file({"W": np.eye(2)}, path, {"format": "unsoftmax-recovery/1", "recovery": header})
        with pytest.raises(us.errors.FileFormatError):
            us.load(path)
        with pytest.raises(us.errors.FileFormatError):
            us.models.load(path)
