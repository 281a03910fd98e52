"""The digits network end to end by one command for each int8 target: size, accuracy, what each node computes in."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", ["cpu-int8", "x86-vnni-int8", "arm-dotprod-int8"])
def test_one_command_tells_size_accuracy_and_reasons(target: str, tmp_path: Path) -> None:
    script = ROOT / "examples" / "digits" / "quantize.py"
    done = subprocess.run(
        [sys.executable, str(script), target, f"--output={tmp_path}"],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    size, floating = re.search(
        r"^size +([\d.]+) KiB, in float32 ([\d.]+) KiB", done.stdout, re.M
    ).groups()
    assert float(size) < float(floating)
    assert float(size) * 1024 == pytest.approx(
        (tmp_path / f"digits-{target}.so").stat().st_size, rel=0.01
    )
    assert re.search(r"^in float32 98\.8% of 1,000 digits$", done.stdout, re.M)
    assert re.search(r"^in int8 +98\.[3-9]% of 1,000 digits", done.stdout, re.M)
    assert done.stdout.count("products of 8 bits, summed in int32") == 3
    assert re.search(r"^predicted: [1-9]\.\d\d times as fast as in float32", done.stdout, re.M)
    assert "Precisions of digits" in (tmp_path / f"digits-{target}.html").read_text()
