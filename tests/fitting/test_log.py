"""Logs: shapes in, flat records out; files; what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unsoftmax as us
from tests.fitting.logs import head, ragged_ids, tokens
from unsoftmax.fitting.blocks import Blocks

Y = np.arange(3.0)
X = tokens(3, dim=2, length=4)


def test_ragged_padded_and_flat_records_are_the_same_log() -> None:
    parts = [X[0, :2], X[1, :4], X[2, :1]]
    ragged = us.Log(parts, Y)
    padded = us.Log(X, Y, lengths=[2, 4, 1])
    flat = us.Log(np.concatenate(parts), Y, lengths=[2, 4, 1])
    for other in (padded, flat):
        assert np.array_equal(ragged.tokens, other.tokens)
        assert np.array_equal(ragged.lengths, other.lengths)
    assert np.array_equal(ragged.queries, [X[0, 1], X[1, 3], X[2, 0]])
    assert (len(ragged), ragged.dim, ragged.outputs) == (3, 2, None)


def test_ids_stay_ids_and_mean_their_vectors() -> None:
    table = tokens(1, dim=2, length=9)[0]
    ids = [[1, 2], [3], [8, 0, 5]]
    log = us.Log(ids, Y, table=table)
    assert log.tokens.dtype.kind == "i"
    assert np.array_equal(log.vectors(np.arange(6)), table[[1, 2, 3, 8, 0, 5]])
    assert np.array_equal(log.take(np.array([2, 0])).tokens, [8, 0, 5, 1, 2])


def test_blocks_hold_every_record_once_with_its_own_tokens() -> None:
    table = tokens(1, dim=3, length=50)[0]
    log = us.Log(ragged_ids(300, 50), np.arange(300.0), table=table)
    blocks = Blocks(log, np.arange(0, 300, 2))
    seen = []
    for block in blocks:
        for row, record in enumerate(blocks.order[block.rows]):
            keep = slice(None) if block.beyond is None else ~block.beyond[row]
            start = log.starts[record]
            assert np.array_equal(block.tokens[row][keep], table[log.tokens[start : start + log.lengths[record]]])
            seen.append(int(blocks.y[block.rows][row, 0]))
    assert sorted(seen) == list(range(0, 300, 2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"answers": Y[:2]}, "one answer"),
        ({"answers": np.array([1.0, np.nan, 2.0])}, "finite"),
        ({"answers": ["a", "b", "c"]}, "real numbers"),
        ({"tokens": X[0, 0]}, "tokens"),
        ({"tokens": X[:, 0]}, "lengths"),
        ({"tokens": [X[0], X[1, :, :1], X[2]]}, "one dimension"),
        ({"tokens": []}, "at least one token"),
        ({"lengths": [1, 2]}, "lengths"),
        ({"lengths": [1, 2, 9]}, "lengths"),
        ({"lengths": [0, 2, 2]}, "lengths"),
        ({"table": X[0]}, "integer ids"),
        ({"tokens": [[0], [1], [7]], "table": X[0]}, "ids must lie in 0..3"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"tolerance": np.inf}, "tolerance"),
        ({"dtype": "int8"}, "dtype"),
        ({"dtype": np.ones(3)}, "dtype"),
        ({"tokens": np.ma.array(X, mask=X > 1)}, "masked"),
        ({"tokens": [[0], [1], [2]], "lengths": None, "table": None}, "sequence in `tokens`"),
        ({"tokens": np.zeros((3, 4), dtype=int)}, "table"),
    ],
    ids=str,
)
def test_junk_is_refused_by_name(options, words) -> None:
    with pytest.raises(us.errors.InvalidArgument, match=words):
        us.Log(**{"tokens": X, "answers": Y, **options})


def test_ids_without_a_table_are_told_what_they_need(tmp_path) -> None:
    (tmp_path / "log.jsonl").write_text('{"ids": [3, 1, 2], "answer": 0.5}\n')
    with pytest.raises(us.errors.InvalidArgument, match="ids with a `table`"):
        us.Log.read(tmp_path / "log.jsonl")


def test_files_read_back_as_the_same_log(tmp_path) -> None:
    log = us.Log(X, Y, tolerance=0.5)
    np.savez(tmp_path / "log.npz", tokens=X, answers=Y, tolerance=0.5)
    lines = [json.dumps({"tokens": x.tolist(), "answer": y}) for x, y in zip(X, Y, strict=True)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    for path, declared in (("log.npz", {}), ("log.jsonl", {"tolerance": 0.5})):
        found = us.Log.read(tmp_path / path, **declared)
        assert np.array_equal(found.tokens, log.tokens)
        assert np.array_equal(found.answers, log.answers)
        assert found.tolerance == 0.5


def test_parquet_reads_ids_and_vector_answers(tmp_path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    ids, answers = [[1, 2], [0], [2, 2, 1]], [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]]
    parquet.write_table(pa.table({"ids": ids, "answer": answers}), tmp_path / "log.parquet")
    log = us.Log.read(tmp_path / "log.parquet", table=X[0])
    assert log.tokens.tolist() == [1, 2, 0, 2, 2, 1]
    assert log.outputs == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "x"),
        ("a.npz", "x"),
        ("a.jsonl", "{"),
        ("a.jsonl", '{"ids": [1]}'),
        ("a.parquet", "x"),
        ("a.jsonl", ""),
    ],
)
def test_files_that_hold_no_log_are_refused(tmp_path, name, text) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(us.errors.FileFormatError):
        us.Log.read(tmp_path / name)
    with pytest.raises(us.errors.FileFormatError):
        us.Log.read(tmp_path / "missing.npz")


def test_archives_that_were_cut_or_changed_are_refused(tmp_path) -> None:
    path = tmp_path / "log.npz"
    np.savez_compressed(path, tokens=X, answers=Y)
    whole = path.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    encrypted, packed = bytearray(whole), bytearray(whole)
    encrypted[6] |= 1
    encrypted[directory + 8] |= 1
    packed[8] = packed[directory + 10] = 99
    changed = whole[:80] + bytes(20) + whole[100:]
    for junk in (whole[: len(whole) // 2], whole[:-30], changed, bytes(encrypted), bytes(packed)):
        path.write_bytes(junk)
        with pytest.raises(us.errors.FileFormatError, match="log"):
            us.Log.read(path)


def test_a_log_is_no_oracle() -> None:
    log = us.Log(X, head(2)(X))
    with pytest.raises(us.errors.UnsoftmaxError):
        us.recover(log, us.learners.SingleHead())  # type: ignore[arg-type]


def test_a_ledger_that_kept_its_tokens_is_a_log(tmp_path) -> None:
    head = us.models.SingleHead.random(4, norm=1.0, seed=1)
    path = tmp_path / "run.ledger"
    recovery = us.recover(us.oracle(head), us.learners.SingleHead(), ledger=path, keep_tokens=True)
    log = us.Log.read(path)
    assert len(log) == recovery.usage.billed
    assert log.notes == ()
    longest = int(log.lengths.max())
    assert longest == 300  # copies and long sequences are written out
    for k in range(0, len(log), 7):
        rows = log.tokens[log.starts[k] : log.starts[k] + log.lengths[k]]
        assert np.isclose(head(rows[None])[0], log.answers[k], rtol=1e-12)
    again = us.recover(us.oracle(head), us.learners.SingleHead(), ledger=path, keep_tokens=True)
    assert again.usage.billed == 0
    assert len(us.Log.read(path)) == len(log)


def test_a_ledger_without_its_tokens_says_how_to_record_them(tmp_path) -> None:
    path = tmp_path / "run.ledger"
    head = us.models.SingleHead.random(4, norm=1.0, seed=1)
    us.recover(
        us.oracle(lambda X: head(X.astype("float32").astype(float)), 4, dtype="float32"),
        us.learners.SingleHead(),
        ledger=path,
    )
    with pytest.raises(us.errors.FileFormatError, match="keep_tokens=True"):
        us.Log.read(path)
    with pytest.raises(us.errors.FileFormatError, match="no such file"):
        us.Log.read(tmp_path / "none.ledger")
    with pytest.raises(us.errors.InvalidArgument, match="keep_tokens"):
        us.recover(us.oracle(head), us.learners.SingleHead(), keep_tokens=True)


def test_a_ledger_that_kept_some_of_its_tokens_says_so(tmp_path) -> None:
    """Without keep_tokens, some sequences are kept for other processors: 93 of 431 were a log."""
    path = tmp_path / "run.ledger"
    paid = us.recover(us.oracle(us.models.SingleHead.random(6, norm=1.0, seed=1)), ledger=path).usage.billed
    log = us.Log.read(path)
    assert f"{len(log)} of its {paid} answers" in log.notes[0]
    assert log.take(np.arange(3)).notes == log.notes
    assert us.fit(log).notes[-1] == log.notes[0]


def test_padding_may_be_anything() -> None:
    X, lengths = tokens(40, dim=3, length=6), np.arange(40) % 6 + 1
    padded = np.where(np.arange(6)[None, :, None] < lengths[:, None, None], X, np.nan)
    log = us.Log(padded, np.ones(40), lengths)
    assert np.array_equal(log.tokens, np.concatenate([x[:n] for x, n in zip(X, lengths, strict=True)]))
    padded[3, 0] = np.nan
    with pytest.raises(us.errors.InvalidArgument, match="finite"):
        us.Log(padded, np.ones(40), lengths)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"tokens": [[1,', "line 3"),
        ('{"tokens": [[1, 2], [3]], "answer": 1}', "tokens of record 3"),
        ('{"tokens": [[1, 2]], "answer": null}', "answer of record 3"),
        ('{"tokens": [[1, 2]], "answer": [1, 2]}', "answer of record 3"),
        ('{"tokens": [["a", 2]], "answer": 1}', "tokens of record 3"),
    ],
)
def test_a_bad_record_is_named_by_its_number(tmp_path, line, words) -> None:
    good = '{"tokens": [[1, 2], [3, 4]], "answer": 1.5}\n'
    (tmp_path / "log.jsonl").write_text(good * 2 + line + "\n" + good)
    with pytest.raises(us.errors.FileFormatError, match=words):
        us.Log.read(tmp_path / "log.jsonl")
