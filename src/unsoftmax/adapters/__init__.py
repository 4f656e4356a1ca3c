"""Targets as oracles; heavy dependencies are imported only when an adapter is used."""

from unsoftmax.adapters.callable import oracle
from unsoftmax.adapters.http import http
from unsoftmax.adapters.tokens import token_oracle

__all__ = ["http", "oracle", "token_oracle"]
