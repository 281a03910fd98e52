"""nn.lookup: entries by the bits of bytes."""

import numpy as np
import pytest

from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.lookup import Lookup


def test_negative_bytes_stand_behind_the_others(run):
    table = np.arange(256).astype(np.uint8)[::-1].copy()
    y = run(Lookup, x=np.array([[0, 1], [-1, -128]], np.int8), table=table)
    assert y.tolist() == [[255, 254], [0, 127]]
    assert y.dtype == np.uint8


def test_the_result_has_the_type_of_the_table(run):
    y = run(Lookup, x=np.array([0, 255], np.uint8), table=np.arange(-128, 128).astype(np.int8))
    assert y.tolist() == [-128, 127]


@pytest.mark.parametrize(
    ("x", "table"),
    [(np.zeros(3, np.int32), np.zeros(256, np.int8)), (np.zeros(3, np.int8), np.zeros(255, np.int8)),
     (np.zeros(3, np.int8), np.zeros((1, 256), np.int8)), (np.zeros(3, np.int8), np.zeros(256, np.int16))],
)  # fmt: skip
def test_what_is_no_table_of_bytes_is_refused(run, x, table):
    with pytest.raises(CompileError, match=r"table|sizes|XC200"):
        run(Lookup, x=x, table=table)
