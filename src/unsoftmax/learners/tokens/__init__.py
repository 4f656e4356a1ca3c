"""Heads over token ids: parts of `learners.token_head`."""
