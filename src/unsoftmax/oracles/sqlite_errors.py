"""What SQLite and damaged bytes have to say, as errors of a ledger that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unsoftmax.errors import LedgerError


@contextmanager
def troubles(path: Path) -> Iterator[None]:
    """SQLite's errors as LedgerError, with what to do."""
    try:
        yield
    except sqlite3.Error as error:
        # The last byte of the code is its kind, the others say more.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LedgerError(f"{path} is in use by another run; wait until it ends, or pass another path.") from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise LedgerError(
                f"{path} cannot be opened or written ({error}); check that the directory exists, is writable "
                "and has space."
            ) from error
        raise LedgerError(
            f"{path} cannot be read as a ledger ({error}); restore a copy, or start a new ledger."
        ) from error
    except (ArithmeticError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise LedgerError(f"{path} is damaged ({error}); restore a copy, or start a new ledger.") from error
