"""Precisions of parts of a model: which rule holds, what it is called, and that cache keys tell them apart."""

import json
from dataclasses import replace

import pytest

from xcompile.compiler.api import make_request
from xcompile.compiler.cli.options import Compilation
from xcompile.compiler.pipelines import PRECISION_PASSES, default_pipeline
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.precision_map import ALL_FLOAT, PrecisionMap
from xcompile.compiler.target.registry import PRECISIONS, targets

MIXED = PrecisionMap("int8", (("layer3/*", "fp32"), ("layer3/1", "int8"), ("*Gemm*", "w4")))


@pytest.mark.parametrize(
    ("names", "precision", "reason"),
    [
        (["layer2/0"], "int8", ""),
        (["layer3/0"], "fp32", "kept in floating point by 'layer3/*'"),
        (["layer3/1"], "int8", ""),
        (["layer3/1", "layer3/Gemm"], "w4", "'*Gemm*' asks for w4"),
        ([], "int8", ""),
    ],
)
def test_the_last_rule_that_fits_holds(names: list[str], precision: str, reason: str) -> None:
    assert (MIXED.of(names), MIXED.reason(names)) == (precision, reason)


def test_a_map_is_what_its_json_says() -> None:
    assert PrecisionMap.from_json(json.loads(json.dumps(MIXED.to_json()))) == MIXED


def test_a_pass_that_a_pipeline_names_is_meant_for_the_whole_model() -> None:
    assert ALL_FLOAT.asking("int8") == PrecisionMap("int8")
    assert ALL_FLOAT.keeping_float(["a"]).asking("int8") == PrecisionMap("int8", (("a", "fp32"),))
    assert MIXED.asking("w4") == MIXED


def test_every_precision_has_passes_and_all_of_a_mix_run_once() -> None:
    assert ("fp32", *PRECISION_PASSES) == PRECISIONS
    target = targets()["x86-avx2"]
    assert default_pipeline(target) == "@cpu"
    for name, passes in PRECISION_PASSES.items():
        mixed = PrecisionMap("fp32", (("a", name), ("b", name)))
        assert default_pipeline(target, mixed) == f"@clean,{passes},@finish,@kernels"
    both = default_pipeline(target, PrecisionMap("w4", (("a", "dynamic"), ("b", "fp16"))))
    passes = "nn-quantize-dynamically,nn-quantize-weights,nn-narrow-floats"
    assert both == f"@clean,{passes},@finish,@kernels"


def test_keep_float_is_a_rule_behind_the_others() -> None:
    request, _ = make_request("cpu-int8", precisions={"a*": "int8"}, keep_float="ab")
    assert request.precisions == PrecisionMap("int8", (("a*", "int8"), ("ab", "fp32")))


def test_a_request_has_another_key_with_other_rules_or_another_order_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # other tests add passes to the process
    monkeypatch.setattr("xcompile.compiler.request.extensions_fingerprint", lambda known: "")
    request, _ = make_request("x86-avx2")
    rules = (("a*", "int8"), ("*b", "fp32"))
    maps = [ALL_FLOAT, PrecisionMap("int8"), PrecisionMap("fp32", rules)]
    maps.append(PrecisionMap("fp32", rules[::-1]))
    assert len({replace(request, precisions=each).key() for each in maps}) == 4


def test_the_command_line_takes_the_last_of_equal_globs_in_its_place() -> None:
    made = Compilation(precision=["a=int8", "b*=fp32", "x=1=int8", "a=fp32"])
    assert list(made.precisions().items()) == [("b*", "fp32"), ("x=1", "int8"), ("a", "fp32")]
    assert made.chooses_precision()
    assert not Compilation(precision=["a=fp32"]).chooses_precision()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"a": "int9"},
            "XC6002 no precision 'int9' (in the precision of 'a') (help: did you mean int8?)",
        ),
        ({"a": 8}, "XC6002 no precision '8' (in the precision of 'a')"),
        ({8: "int8"}, "XC6005 precisions are a mapping from globs of nodes to names of precisions"),
        (["int8"], "XC6005 precisions are a mapping from globs of nodes to names of precisions"),
    ],
)
def test_what_names_no_precision_is_refused(given: object, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        make_request("cpu", precisions=given)  # pyright: ignore[reportArgumentType]
    assert str(caught.value).startswith(message)


def test_a_rule_without_a_name_is_refused_on_the_command_line() -> None:
    with pytest.raises(CompileError, match="XC6005 --precision is 'layer3'"):
        Compilation(precision=["layer3"]).precisions()
