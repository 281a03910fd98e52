"""The manifest: JSON both ways, and any bytes in give a clean error."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import random
import re
import struct

import pytest

from tests.unit.runtime.fake_model import MANIFEST, NATIVE
from xcompile.runtime.abi import (
    ABI_VERSION,
    ALIGNMENT,
    DTYPE_CODES,
    MAX_THREADS,
    Context,
    Manifest,
    TensorSpec,
    is_prefix,
)
from xcompile.runtime.errors import RuntimeModelError

HEADER = (NATIVE / "xcompile_rt.h").read_text()
FULL = dataclasses.replace(
    MANIFEST,
    features=("avx2", "fma"),
    provenance={"xcompile": "0.1", "σ": 'emoji 🙂 and \n and " and %s'},
    inputs=(
        *MANIFEST.inputs,
        TensorSpec("", "bfloat16", ()),
        TensorSpec("a/b:0\n%s", "int4", ("2*n + 1",)),
        TensorSpec("x" * 10_000, "bool", ("0", "9223372036854775807")),
    ),
)


def test_a_manifest_survives_its_json() -> None:
    assert Manifest.from_json(FULL.to_json()) == FULL
    assert Manifest.from_json(FULL.to_json().encode()) == FULL
    assert Manifest.from_json(FULL.to_json()).to_json() == FULL.to_json()


def test_python_and_c_agree_on_the_context_and_the_constants() -> None:
    fields = re.findall(r"^  [^\n;]*?(\w+);\s*/\*\s*(\d+):", HEADER, re.MULTILINE)
    assert [(name, getattr(Context, name).offset) for name, _ in Context._fields_] == [
        (name, int(offset)) for name, offset in fields
    ]
    assert ctypes.sizeof(Context) == 80
    constants = dict(re.findall(r"#define (XC_\w+) (\d+)", HEADER))
    assert constants["XC_ABI"] == str(ABI_VERSION)
    assert constants["XC_MAX_THREADS"] == str(MAX_THREADS)
    assert constants["XC_ALIGNMENT"] == str(ALIGNMENT)


def test_the_signature_is_words_for_c_and_then_feature_names() -> None:
    manifest = dataclasses.replace(FULL, inputs=FULL.inputs[:1], outputs=FULL.outputs[1:])
    sizes = [5, 16, 16, 64, 8 * 15]
    words = [ABI_VERSION, 1, 1, *sizes, DTYPE_CODES["float32"], 2, -1, 4, 0x220, 1, -1]
    assert manifest.signature() == struct.pack("<15q", *words) + b"avx2\0fma\0\0"


VALUES = json.loads(FULL.to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "wrong keys: extra"),
        ({"prefix": "1x"}, "prefix"),
        ({"prefix": "pthread"}, "prefix"),
        ({"prefix": "a\nb"}, "prefix"),
        ({"table_slots": True}, "table_slots is not an integer"),
        ({"table_slots": 1.0}, "table_slots is not an integer"),
        ({"table_slots": -1}, "table_slots is not an integer"),
        ({"table_slots": 3}, "no room"),
        ({"table_slots": 10**30}, "table_slots is not an integer"),
        ({"weights_bytes": 1 << 62}, "weights_bytes"),
        ({"scratch_stride": 1 << 45}, "scratch_stride"),
        ({"inputs": {}}, "inputs is not a list"),
        ({"inputs": [1]}, "inputs is not an object"),
        ({"inputs": [{"name": "x"}]}, "wrong keys"),
        ({"inputs": [{"name": "x", "dtype": "f32", "dims": []}]}, "unknown dtype 'f32'"),
        ({"inputs": [{"name": "x", "dtype": "int8", "dims": [4]}]}, "not a text"),
        ({"inputs": [{"name": "x", "dtype": "int8", "dims": ["-4"]}]}, "'-4' is not a size"),
        ({"inputs": [{"name": "x", "dtype": "int8", "dims": [""]}]}, "'' is not a size"),
        ({"inputs": [{"name": "x", "dtype": "int8", "dims": ["9223372036854775808"]}]}, "a size"),
        ({"inputs": [{"name": "x", "dtype": "int8", "dims": ["007"]}]}, "'007' is not a size"),
        ({"inputs": [{"name": "x", "dtype": "int8", "dims": ["1"] * 65}]}, "more than 64"),
        ({"inputs": VALUES["inputs"][:1] * 2}, "twice"),
        ({"features": ["avx\0"]}, "features"),
        ({"provenance": {"a": {}}}, "provenance is not a text"),
        ({"checks": "abc"}, "checks is not a list"),
        ({"target": None}, "target is not a text"),
    ],
)
def test_a_wrong_manifest_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(RuntimeModelError, match=re.escape(message)) as caught:
        Manifest.from_json(json.dumps(VALUES | change))
    assert caught.value.code == "XC7002"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"1",
        b"{",
        b'{"abi": NaN}',
        b'{"abi":1,"abi":1}',
        b"[" * 100_000,
        b'{"abi": "1"}',
    ],
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(RuntimeModelError) as caught:
        Manifest.from_json(text)
    assert caught.value.code == "XC7002"


def test_text_with_half_a_character_is_refused() -> None:
    with pytest.raises(RuntimeModelError):
        Manifest.from_json('{"abi": "\ud800"}')
    with pytest.raises(RuntimeModelError):
        Manifest.from_json(json.dumps(VALUES | {"target": "\ud800"}))


def test_another_version_is_named() -> None:
    with pytest.raises(RuntimeModelError, match=r"version 1 .*, this one is 2") as caught:
        Manifest.from_json(json.dumps(VALUES | {"abi": 1}))
    assert caught.value.code == "XC7003"


def test_damaged_json_is_refused_or_means_what_it_says() -> None:
    source, choose = MANIFEST.to_json().encode(), random.Random(7)
    codes: list[str] = []
    accepted = 0
    for _ in range(3000):
        damaged = bytearray(source)
        for _ in range(choose.randint(1, 2)):
            damaged[choose.randrange(len(damaged))] = choose.choice(b'0123456789{}[],:" truenal-.')
        try:
            read = Manifest.from_json(bytes(damaged))
        except RuntimeModelError as error:
            codes.append(error.code)
            continue
        accepted += 1
        assert Manifest.from_json(read.to_json()) == read
        assert json.loads(read.to_json()) == json.loads(damaged)
    assert set(codes) == {"XC7002", "XC7003"}
    assert accepted > 100


def test_json_cut_anywhere_is_refused() -> None:
    source = FULL.to_json().encode()
    for end in range(0, len(source), 37):
        with pytest.raises(RuntimeModelError, match="XC7002"):
            Manifest.from_json(source[:end])


@pytest.mark.parametrize("prefix", ["m", "_", "free", "Model_2", "a" * 64])
def test_identifiers_are_prefixes(prefix: str) -> None:
    assert is_prefix(prefix)


@pytest.mark.parametrize(
    "prefix",
    ["", "1x", "a-b", "a b", "é", "m\n", "a" * 65, "xc", "xc_model", "pthread_mutex", "sem", "__x"],
)
def test_other_texts_and_names_of_libc_are_not(prefix: str) -> None:
    assert not is_prefix(prefix)
