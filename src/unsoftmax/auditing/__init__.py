"""Audit: what leaks, at what price, and what a defence buys. In reading order.

run        `audit`: the cells of the ladder, one after the other, and limits to set
terms      what an attacker pays, how fast he may ask, what a copy should cost him
ladder     access levels and defences, as wrappers around the oracle
cells      one cell: its learner, its run, the verdict on the copy
attacks    ways to attack one cell, tried in turn
keeping    the folder of an audit: finished cells, ledgers of others
unknowns   degrees of freedom of a model
advice     what the cells mean, in sentences
constants  what was measured or chosen, side by side
"""

from unsoftmax.auditing.ladder import Scenario, ladder, ladder_slug
from unsoftmax.auditing.run import audit
from unsoftmax.auditing.terms import Terms
from unsoftmax.results.audit import Audit, Cell, load_audit

__all__ = ["Audit", "Cell", "Scenario", "Terms", "audit", "ladder", "ladder_slug", "load_audit"]
