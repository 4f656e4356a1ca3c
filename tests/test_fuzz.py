"""Files from strangers: whatever the bytes, reading ends in a value or a typed error."""

from __future__ import annotations

import json
import random
import struct
import zlib

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.oracles import Ledger

WORDS = (b"null", b"-1", b"1e999", b"NaN", b'""', b"{}", b"[]", b"[[[[", b"99999999999999999999", b"\xff\xfe", b"\x00")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four small changes: flips, cuts, repeats, splices, numbers at their limits."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not made:
            break
        at = rng.randrange(len(made))
        match rng.randrange(7):
            case 0:
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del made[at : at + rng.choice((1, 8, 512, 4096))]
            case 3:
                made[at:at] = made[at : at + rng.choice((1, 8, 100, 4096))]
            case 4:
                word = rng.choice(WORDS)
                made[at : at + len(word)] = word
            case 5:
                made[at : at + 8] = struct.pack("<q", rng.choice((0, -1, 2**31, 2**63 - 1, -(2**63))))
            case 6:
                other = rng.randrange(len(made))
                made[at : at + 16] = made[other : other + 16]
    return bytes(made)


def mutated_header(data: bytes, rng: random.Random) -> bytes:
    """A safetensors file with its JSON header changed and its length put right, so that parsing goes deeper."""
    size = struct.unpack("<Q", data[:8])[0]
    header = mutated(data[8 : 8 + size], rng)
    if rng.random() < 0.5:
        text = json.loads(data[8 : 8 + size])
        inner = text["__metadata__"].get("recovery")
        if inner is not None:
            text["__metadata__"]["recovery"] = mutated(inner.encode(), rng).decode("latin-1")
            header = json.dumps(text).encode()
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    head = us.models.SingleHead.random(5, norm=2.0, seed=0)
    recovery = us.recover(us.oracle(head, max_batch=16), us.learners.SingleHead(), ledger=folder / "ledger")
    recovery.save(folder / "recovery")
    head.save(folder / "model")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read_recovery(path):
    us.models.load(path)
    loaded = us.load(path)
    assert repr(loaded)
    assert loaded.certificate.holds in (True, False)


def read_ledger(path):
    with Ledger(path) as ledger:
        _ = ledger.binding
        ledger.check()
        for _, keys, answers in ledger.chunks():
            known, held = ledger.get(keys)
            assert np.isfinite(held).all()
            assert known.sum() == len(held) <= len(answers)


READERS = {"recovery": read_recovery, "model": us.models.load, "ledger": read_ledger}


def fuzz(originals, folder, rounds, seed):
    """How many of the mutated files were read, and how many refused."""
    rng = random.Random(seed)
    path = folder / "mutated"
    read = refused = 0
    for i in range(rounds):
        name = list(READERS)[i % 3]
        change = mutated_header if name != "ledger" and rng.random() < 0.5 else mutated
        data = change(originals[name], rng)
        for leftover in folder.iterdir():
            leftover.unlink()
        path.write_bytes(data)
        try:
            READERS[name](path)
            read += 1
        except UnsoftmaxError:
            refused += 1
        except BaseException as error:
            error.add_note(f"{name}, round {i} of seed {seed}, {len(data)} bytes, crc {zlib.crc32(data):08x}")
            raise
    return read, refused


def test_untouched_files_are_read(originals, tmp_path):
    for name, data in originals.items():
        (tmp_path / name).write_bytes(data)
    read_recovery(tmp_path / "recovery")
    read_ledger(tmp_path / "ledger")
    us.models.load(tmp_path / "model")


@pytest.mark.parametrize(("rounds", "seed"), [(600, 0), pytest.param(100_000, 1, marks=pytest.mark.long)])
def test_mutated_files_give_typed_errors_only(originals, tmp_path, rounds, seed):
    read, refused = fuzz(originals, tmp_path, rounds, seed)
    assert read + refused == rounds
    assert refused > rounds // 3


def test_deep_and_huge_headers_are_refused(originals, tmp_path):
    data = originals["recovery"]
    size = struct.unpack("<Q", data[:8])[0]
    text = json.loads(data[8 : 8 + size])
    recovery = json.loads(text["__metadata__"]["recovery"])
    for change in (
        {"notes": json.loads("[" * 900 + "]" * 900)},
        {"usage": {"billed": 1, "surprise": 2}},
        {"usage": {"billed": "many"}},
        {"status": "excellent"},
        {"model": "os.system"},
        {"claims": [{"name": 1, "bound": "x"}]},
        {"claims": 7},
        {"provenance": [1]},
    ):
        text["__metadata__"]["recovery"] = json.dumps({**recovery, **change})
        header = json.dumps(text).encode()
        (tmp_path / "r").write_bytes(struct.pack("<Q", len(header)) + header + data[8 + size :])
        with pytest.raises(UnsoftmaxError):
            repr(us.load(tmp_path / "r"))
    (tmp_path / "r").write_bytes(struct.pack("<Q", 2**62) + data[8:])
    with pytest.raises(UnsoftmaxError):
        us.load(tmp_path / "r")
