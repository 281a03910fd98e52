"""Which precision each op of a model is computed in, as a value that every precision pass asks."""

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

FLOAT: str = "fp32"
"""The precision of a model that nobody says anything about."""


@dataclass(frozen=True)
class PrecisionMap:
    """A precision for a whole model, and rules for parts of it.

    Attributes:
        default: of all ops that no rule is for.
        rules: pairs of a glob and a precision; the glob is of names of nodes or tensors, and of several rules for an op
            the last one holds.
    """

    default: str = FLOAT
    rules: tuple[tuple[str, str], ...] = ()

    def of(self, names: Iterable[str]) -> str:
        """The precision of an op with these names: its model nodes, and the tensors that it gives."""
        return self._rule(names)[1]

    def reason(self, names: Iterable[str]) -> str:
        """Which rule gives an op another precision than the default; "" when none does."""
        glob, precision = self._rule(names)
        if precision == self.default:
            return ""
        if precision == FLOAT:
            return f"kept in floating point by '{glob}'"
        return f"'{glob}' asks for {precision}"

    def used(self) -> tuple[str, ...]:
        """The default, then what the rules name besides, in their order."""
        return tuple(dict.fromkeys((self.default, *(precision for _, precision in self.rules))))

    def with_rules(self, rules: Iterable[tuple[str, str]]) -> Self:
        """With further rules, which come last."""
        return type(self)(self.default, (*self.rules, *rules))

    def keeping_float(self, globs: Iterable[str]) -> Self:
        """With what the globs name in float32."""
        return self.with_rules((glob, FLOAT) for glob in globs)

    def asking(self, *precisions: str) -> Self:
        """What the pass of these precisions goes by: it was put into a pipeline, so one of them is meant.

        That is the map itself where it names one, else the map with the first of them in the place of float32.
        """
        if set(precisions) & set(self.used()):
            return self
        return type(self)(precisions[0], self.rules)

    def to_json(self) -> dict[str, Any]:
        """The map as JSON values; `from_json` reads it."""
        return {"default": self.default, "rules": [list(rule) for rule in self.rules]}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The map of `to_json`."""
        return cls(fields["default"], tuple((glob, name) for glob, name in fields["rules"]))

    def _rule(self, names: Iterable[str]) -> tuple[str, str]:
        listed = list(names)
        for glob, precision in reversed(self.rules):
            if any(fnmatch.fnmatchcase(name, glob) for name in listed):
                return glob, precision
        return "", self.default


ALL_FLOAT = PrecisionMap()
"""Everything in float32."""
