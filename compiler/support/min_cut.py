"""Minimum cuts, for decisions with two choices (Dinic's algorithm)."""

from collections import deque
from collections.abc import Hashable, Iterable

Node = Hashable


def min_cut(edges: Iterable[tuple[Node, Node, int]], source: Node, sink: Node) -> set[Node]:
    """The source's side of a cut of least capacity; of several, the smallest one.

    Args:
        edges: from, to, capacity (at least 0).
        source: what lies on the side that is returned.
        sink: what lies on the other.
    """
    network = _Network(edges)
    while (levels := network.levels(source)).get(sink) is not None:
        network.block(levels, source, sink)
    return set(levels)


class _Network:
    """Edges in pairs: edge `i ^ 1` is edge `i` backwards, whose capacity is what can be taken back."""

    def __init__(self, edges: Iterable[tuple[Node, Node, int]]) -> None:
        self._to: list[Node] = []
        self._left: list[int] = []
        self._out: dict[Node, list[int]] = {}
        for start, end, capacity in edges:
            for here, there, amount in ((start, end, capacity), (end, start, 0)):
                self._out.setdefault(here, []).append(len(self._to))
                self._to.append(there)
                self._left.append(amount)

    def levels(self, source: Node) -> dict[Node, int]:
        """The distance of every node that can still be reached."""
        found: dict[Node, int] = {source: 0}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self._out.get(node, ()):
                if self._left[edge] and self._to[edge] not in found:
                    found[self._to[edge]] = found[node] + 1
                    queue.append(self._to[edge])
        return found

    def block(self, levels: dict[Node, int], source: Node, sink: Node) -> None:
        """Send as much as fits along shortest paths."""
        remaining = {node: list(edges) for node, edges in self._out.items()}
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                amount = min(self._left[edge] for edge in path)
                for edge in path:
                    self._left[edge] -= amount
                    self._left[edge ^ 1] += amount
                path, node = [], source
            elif edge := self._next(remaining[node], levels, node):
                path.append(edge[0])
                node = self._to[edge[0]]
            elif path:
                node = self._to[path.pop() ^ 1]
                remaining[node].pop()
            else:
                return

    def _next(self, edges: list[int], levels: dict[Node, int], node: Node) -> tuple[int] | None:
        """The last edge that leads one level on and is not full, the others behind it dropped."""
        while edges:
            edge = edges[-1]
            if self._left[edge] and levels.get(self._to[edge]) == levels[node] + 1:
                return (edge,)
            edges.pop()
        return None
