"""Ensembles of decision trees: every tree of every row goes down one level at a time, all of them side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of, numpy_dtype, rank_of
from xcompile.dialects.nn.gather import GatherElements
from xcompile.dialects.nn.reduce import ReduceMax, ReduceMin, ReduceSum
from xcompile.dialects.nn.softmax import Softmax
from xcompile.dialects.nn.unary import IsNan, Not, Sigmoid
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op

_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(7)
_AVERAGE, _SUM, _MIN, _MAX = range(4)
_NONE, _SOFTMAX, _LOGISTIC = range(3)

_DEEPEST = 64
"""Levels of a tree; each is some ops."""
_MOST_NODES = 1 << 20


@dataclass
class _Trees:
    """The branching nodes of all trees; a node that follows is a number from 0, or -1 - leaf.

    Attributes:
        features: which column a node looks at.
        splits: what it compares with.
        modes: how.
        missing: whether NaN counts as true.
        true: what follows if the comparison holds.
        false: what follows if not.
        roots: where each tree begins.
    """

    features: list[int]
    splits: list[float]
    modes: list[int]
    missing: list[int]
    true: list[int]
    false: list[int]
    roots: list[int]

    @classmethod
    def of(cls, node: NodeContext, leaves: int) -> Self:
        """What the attributes say.

        Raises:
            CompileError: XC2007, they contradict each other.
        """
        modes = node.attr("nodes_modes").reshape(-1).tolist()
        splits = node.attr("nodes_splits").reshape(-1).astype(np.float64).tolist()
        names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
        given = {name: list(node.attr(f"nodes_{name}")) for name in names}
        missing = list(node.attr("nodes_missing_value_tracks_true", ())) or [0] * len(modes)
        count, roots = len(modes), list(node.attr("tree_roots"))
        if {count} != {len(splits), len(missing), *map(len, given.values())} or count > _MOST_NODES:
            raise node.error("XC2007", "the attributes of the trees' nodes differ in length")

        def following(side: str) -> list[int]:
            pairs = zip(given[f"{side}nodeids"], given[f"{side}leafs"], strict=True)
            return [-1 - place if leaf else place for place, leaf in pairs]

        true, false = following("true"), following("false")
        places = given["truenodeids"] + given["falsenodeids"]
        if min(places, default=0) < 0 or not all(-leaves <= n < count for n in true + false):
            raise node.error("XC2007", "a node of a tree is followed by one that does not exist")
        if not roots or not all(0 <= root < count for root in roots):
            raise node.error("XC2007", "a root of the trees is no node")
        if not all(mode <= _MEMBER for mode in modes) or any(f < 0 for f in given["featureids"]):
            raise node.error("XC2007", "a node of a tree has an unknown mode or feature")
        return cls(given["featureids"], splits, modes, missing, true, false, roots)

    def open_sets(self, node: NodeContext) -> None:
        """Replace each test of membership by comparisons, one after the other."""
        members = node.attr("membership_values", None)
        values = [] if members is None else members.reshape(-1).astype(np.float64).tolist()
        for place in range(len(self.modes)):
            if self.modes[place] != _MEMBER:
                continue
            chosen: list[float] = []
            while values and not np.isnan(values[0]):
                chosen.append(values.pop(0))
            values = values[1:]
            self._open(place, chosen or [np.nan])  # nothing equals NaN

    def _open(self, place: int, chosen: list[float]) -> None:
        self.modes[place], self.splits[place] = _EQ, chosen[0]
        for value in chosen[1:]:
            self.features.append(self.features[place])
            self.splits.append(value)
            self.modes.append(_EQ)
            self.missing.append(self.missing[place])
            self.true.append(self.true[place])
            self.false.append(self.false[place])
            self.false[place] = place = len(self.modes) - 1

    def depth(self, node: NodeContext) -> int:
        """The most comparisons on a way from a root to a leaf."""
        level, at = 0, set(self.roots)
        while at:
            level += 1
            if level > _DEEPEST:
                raise node.error(
                    "XC1013", f"a tree is deeper than {_DEEPEST} nodes, or has a cycle"
                )
            at = {n for place in at for n in (self.true[place], self.false[place]) if n >= 0}
        return level

    def numbered(self, following: list[int], leaves: int) -> np.ndarray:
        """What follows each node as places behind which the leaves stand, each of which follows itself."""
        count = len(self.modes)
        own = [n if n >= 0 else count - 1 - n for n in following]
        return np.array([*own, *range(count, count + leaves)], np.int64)


@onnx_op("TreeEnsemble", since=5, domain="ai.onnx.ml")
def tree_ensemble(node: NodeContext) -> list[Value]:
    """Rows of features to the aggregated weights of the leaves that they reach.

    A NaN goes where the node's attribute for missing values says, whatever the comparison.
    """
    c, x = Composition(node), node.input(0)
    if rank_of(x) != 2:
        raise node.error("XC2003", f"TreeEnsemble of an input of rank {rank_of(x)}")
    weights = node.attr("leaf_weights").reshape(-1)
    targets = np.array(node.attr("leaf_targetids"), np.int64)
    count = node.attr("n_targets", 1)
    if len(targets) != len(weights) or not all(0 <= t < count for t in targets):
        raise node.error("XC2007", "the leaves of the trees have no weight or target each")
    trees = _Trees.of(node, len(weights))
    trees.open_sets(node)
    leaf = c.sub(_walked(c, x, trees, trees.depth(node), len(weights)), len(trees.modes))
    given = c.widened(c.gather(c.constant(weights.astype(numpy_dtype(x))), leaf, 0))
    hits = c.equal(c.unsqueeze(c.gather(c.constant(targets), leaf, 0), 2), c.ints(*range(count)))
    scores = _aggregated(node, c, c.unsqueeze(given, 2), hits, len(trees.roots))
    return [c.cast(_transformed(node, c, scores), dtype_of(x))]


def _walked(c: Composition, x: Value, trees: _Trees, depth: int, leaves: int) -> Value:
    """The place of the leaf that each row [N] reaches in each tree [T]."""
    roots = c.constant(np.array([trees.roots], np.int64))
    place = c.expand(roots, c.concat([c.shape(x, 0, 1), c.ints(len(trees.roots))], 0))
    padding = [0] * leaves

    def of_nodes(values: list[int] | list[float], dtype: np.dtype) -> Value:
        return c.gather(c.constant(np.array([*values, *padding]).astype(dtype)), place, 0)

    for _ in range(depth):
        feature = of_nodes(trees.features, np.dtype(np.int64))
        value = c.make(GatherElements, x=x, indices=feature, axis=1)
        split = of_nodes(trees.splits, numpy_dtype(x))
        holds = _compared(
            c, value, split, set(trees.modes), lambda: of_nodes(trees.modes, np.dtype(np.int64))
        )
        if any(trees.missing) or _NEQ in trees.modes:
            nan = c.unary(IsNan, value)
            counts = c.cast(of_nodes(trees.missing, np.dtype(np.int64)), "i1")
            holds = c.either(c.both(nan, counts), c.both(c.unary(Not, nan), holds))
        true, false = (
            c.gather(c.constant(trees.numbered(side, leaves)), place, 0)
            for side in (trees.true, trees.false)
        )
        place = c.where(holds, true, false)
    return place


def _compared(
    c: Composition, value: Value, split: Value, modes: set[int], mode: Callable[[], Value]
) -> Value:
    """Whether the comparison of each place holds; NaN makes all but the last one false."""
    makers = {
        _LEQ: c.less_equal,
        _LT: c.less,
        _GTE: c.greater_equal,
        _GT: c.greater,
        _EQ: c.equal,
    }
    found = {m: makers[m](value, split) for m in sorted(modes - {_NEQ})}
    if _NEQ in modes:
        found[_NEQ] = c.unary(Not, c.equal(value, split))
    if len(found) == 1:
        return next(iter(found.values()))
    own, parts = mode(), iter(found.items())
    first, holds = next(parts)
    holds = c.both(c.equal(own, first), holds)
    for each, compared in parts:
        holds = c.either(holds, c.both(c.equal(own, each), compared))
    return holds


def _aggregated(node: NodeContext, c: Composition, given: Value, hits: Value, trees: int) -> Value:
    """The weights [N, T, 1] of the leaves of each target [N, T, n] as one number; 0 for a target without a leaf."""
    how = node.attr("aggregate_function", _SUM)
    if how in (_SUM, _AVERAGE):
        total = c.reduce(ReduceSum, c.where(hits, given, 0), [1], keepdims=False)
        return c.div(total, trees) if how == _AVERAGE else total
    if how not in (_MIN, _MAX):
        raise node.error("XC2007", f"the aggregate function {how} of TreeEnsemble")
    kind, least = (ReduceMin, np.inf) if how == _MIN else (ReduceMax, -np.inf)
    best = c.reduce(kind, c.where(hits, given, least), [1], keepdims=False)
    found = c.reduce(ReduceMax, c.cast(hits, "i32"), [1], keepdims=False)
    return c.where(c.cast(found, "i1"), best, 0)


def _transformed(node: NodeContext, c: Composition, scores: Value) -> Value:
    transform = node.attr("post_transform", _NONE)
    if transform == _NONE:
        return scores
    if transform == _SOFTMAX:
        return c.make(Softmax, x=scores, axis=1)
    if transform == _LOGISTIC:
        return c.unary(Sigmoid, scores)
    raise node.error("XC1006", f"TreeEnsemble with the transform {transform} is not supported")
