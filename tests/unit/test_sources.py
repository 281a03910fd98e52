"""Rules about the sources that no linter states."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from xcompile.compiler.target.registry import targets

ROOT = Path(__file__).parents[2]
PRODUCT = ("compiler", "dialects", "passes", "frontends", "runtime")
SOURCES = sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))


def users(pattern: str) -> set[str]:
    """The product's files in which a pattern occurs."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }


def test_contexts_are_made_in_one_file_and_in_the_workers() -> None:
    allowed = {"compiler/ir/context.py", "compiler/codegen/lowering.py"}
    assert users(r"\bir\.Context\(") <= allowed


def test_the_environment_is_read_in_one_file() -> None:
    assert users(r"\bos\.(environ|getenv)\b") <= {"compiler/support/options.py"}


def test_the_product_opens_no_connections_and_reads_no_pickles() -> None:
    unwanted = (
        r"(?m)^\s*(import|from) (urllib|socket|http|ssl|ftplib|requests|pickle|marshal|shelve)\b"
    )
    assert users(unwanted) == set()


def test_passes_schedules_and_emitters_ask_for_features_and_name_no_target() -> None:
    asking = ("passes/", "dialects/", "frontends/", "compiler/schedule/", "compiler/codegen/cpu/")
    named = rf"[\"']({'|'.join(targets())})[\"']|\btarget\.(name|arch|triple)\b"
    assert [file for file in users(named) if file.startswith(asking)] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_path_of_a_machine_stands_in_the_sources(path: Path) -> None:
    assert not re.search(r"/(home|root|work|Users)/", path.read_text(encoding="utf-8"))


EMITTERS = sorted((ROOT / "compiler" / "codegen" / "cpu").glob("*.py"))
FORMAT_CONSTANTS = {
    "arg_rows.py": {"_LONGEST": "what places of 32 bits can count"},
    "blocked.py": {
        "_MANTISSA": "a property of float32",
        "_EXPONENT_OF_ONE": "a property of float32",
        "_HALF": "bits of half a word",
    },
    "builder.py": {"_VIEW": "the size of a view, larger than any tensor"},
    "conv_tile.py": {"LINE": "floats of a cache line"},
    "counted_kernels.py": {"_MOST_DOUBLINGS": "bits of the largest size that memory has"},
    "isa.py": {"_LEAST_NORMAL": "a property of float32"},
    "map.py": {"_LOOP_CYCLES": "an estimate of a unit's work, not of its shape"},
    "recurrent.py": {
        "_STATES": "the vectors that a recurrent cell keeps",
        "_CODES": "the first of them that holds codes",
    },
    "recurrent_codes.py": {"_SIGNED": "from uint8 to int8"},
    "reduction_by_pi.py": {"_WORDS": "bits of 2/pi that the largest double needs"},
    "remainder.py": {"_STEP": "bits of a quotient that float64 holds"},
    "trig.py": {"_ROUNDER": "a property of float64", "_LIMIT": "a bound of the algorithm"},
}
OF_SCHEDULES = {
    "ACROSS_SUMS",
    "ALONG_SUMS",
    "COLUMNS",
    "DOT_SUMS",
    "MOST_UNROLLED",
    "NARROW_FLOATS",
}
"""What emitters take from schedules though it is no field: numbers of partial sums are the same on every target, so
that results have the same bits; `COLUMNS` are those that a dot product of bytes adds up; `MOST_UNROLLED` is about the
code of one element, and `NARROW_FLOATS` are types.
"""


def numbers_of(tree: ast.Module) -> Iterator[str]:
    """The names of a module that are bound to numbers, or expressions of them, at its top."""
    for statement in tree.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        parts = () if value is None else tuple(ast.walk(value))
        arithmetic = (
            ast.Constant,
            ast.BinOp,
            ast.UnaryOp,
            ast.operator,
            ast.unaryop,
            ast.Name,
            ast.Load,
        )
        constants = [part.value for part in parts if isinstance(part, ast.Constant)]
        numeric = constants and all(isinstance(c, int | float) for c in constants)
        if numeric and all(isinstance(part, arithmetic) for part in parts):
            yield from (name.id for name in targets if isinstance(name, ast.Name))


def literal_blocks(tree: ast.Module) -> Iterator[str]:
    """Steps of loops, and numbers of accumulators, that are literals; two may be a pair of different values."""

    def is_block(node: ast.expr | None) -> bool:
        return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 2

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            step = node.args[2] if len(node.args) > 2 else None
            if node.func.attr in ("loop", "reduce") and is_block(step):
                yield ast.unparse(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = (node.left, node.right)
            if any(isinstance(s, ast.List) for s in sides) and any(map(is_block, sides)):
                yield ast.unparse(node)


@pytest.mark.parametrize("path", EMITTERS, ids=lambda path: path.name)
def test_no_blocking_constant_stands_in_an_emitter(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert set(numbers_of(tree)) <= set(FORMAT_CONSTANTS.get(path.name, {}))
    assert list(literal_blocks(tree)) == []
    taken = [
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "compiler.schedule" in (node.module or "")
        for name in node.names
        if name.name.isupper()
    ]
    assert set(taken) <= OF_SCHEDULES


def test_a_planted_blocking_constant_is_seen() -> None:
    planted = "CHAINS = 8\nBYTES: int = 3 << 10\nNAME = 'x'\nb.reduce(0, n, 8, [init] * 4, body)"
    assert list(numbers_of(ast.parse(planted))) == ["CHAINS", "BYTES"]
    assert list(literal_blocks(ast.parse(planted))) == [
        "b.reduce(0, n, 8, [init] * 4, body)",
        "[init] * 4",
    ]
