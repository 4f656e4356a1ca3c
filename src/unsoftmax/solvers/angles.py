"""Which pairs of directions tell their sizes apart best: a tree of the widest angles.

Theory: docs/theory/kernels.md, "Powers of the score".
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from unsoftmax.probes.base import Array


def widest_tree(directions: Array) -> tuple[list[tuple[int, int]], float]:
    """Edges (parent, child) that reach all rows of `directions` (n, d) from row 0, and the smallest sine of an edge.

    The tree whose cosines are smallest: neighbours are as far from parallel as they can be.
    """
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    cosine = np.minimum(np.abs(unit @ unit.T), 1.0)
    # A weight near 0 would be no edge.
    tree = minimum_spanning_tree(1 + cosine)
    order, parent = breadth_first_order(tree, 0, directed=False)
    edges = [(int(parent[k]), int(k)) for k in order[1:]]
    largest = max((float(cosine[i, j]) for i, j in edges), default=0.0)
    return edges, float(np.sqrt(max(1 - largest**2, 0.0)))


def along(edges: list[tuple[int, int]], ratios: Array) -> Array:
    """Sizes (n,) from the ratio child / parent of every edge, the first row of size 1."""
    sizes = np.ones(len(edges) + 1)
    for (i, j), ratio in zip(edges, ratios, strict=True):
        sizes[j] = sizes[i] * ratio
    return sizes
