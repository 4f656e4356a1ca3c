"""Targets as oracles; heavy dependencies are imported only when an adapter is used."""

from unsoftmax.adapters.callable import oracle

__all__ = ["oracle"]
