"""Compiled libraries: linked, opened, kept apart, and refused when anything about them is wrong."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import importlib.util
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.runtime import fake_model
from tests.unit.runtime.c_interface import CModel, run_python
from tests.unit.runtime.fake_model import HALF_WEIGHTS, MANIFEST, expected, inputs
from xcompile.compiler.codegen import elf
from xcompile.compiler.codegen.elf import DataSymbol, write_data_object
from xcompile.compiler.codegen.link import find_linker, link_library
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime import library_format
from xcompile.runtime.abi import Manifest
from xcompile.runtime.elf_image import read_elf, section_bytes
from xcompile.runtime.errors import RuntimeModelError
from xcompile.runtime.executable import Executable
from xcompile.runtime.library import load, read_manifest

WEIGHTS = HALF_WEIGHTS.tobytes()
HOST = "x86_64"
Build = Callable[..., Path]


def right(model: Executable, scale: int = 1, n: int = 67) -> bool:
    """Whether a model computes what it should, bit for bit."""
    data = inputs(n)
    wanted = expected(**data, scale=scale)
    got = model.run(data)
    return all(got[name].tobytes() == wanted[name].tobytes() for name in wanted)


def refused(call: Callable[[], object]) -> RuntimeModelError | CompileError:
    """The error that the call must raise, in one line."""
    with pytest.raises((RuntimeModelError, CompileError)) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_a_library_computes_what_the_model_does(build: Build, threads: int | None) -> None:
    for source in (build(), str(build()), build().read_bytes(), memoryview(build().read_bytes())):
        model = load(source, threads=threads, poison=True)
        assert all(right(model, n=n) for n in (0, 1, 8, 100))
        assert model.manifest == MANIFEST
    assert read_manifest(build()) == MANIFEST


def test_a_library_exports_its_prefix_only_and_needs_libc_only(build: Build) -> None:
    symbols = read_elf(memoryview(build().read_bytes())).symbols.values()
    assert sorted(symbol.name for symbol in symbols if symbol.defined) == sorted(
        f"m_{name}" for name in library_format.ENTRY_POINTS + library_format.C_FUNCTIONS
    )
    needed = {symbol.name for symbol in symbols if not symbol.defined}
    libc = ctypes.CDLL(None)
    assert all(hasattr(libc, name) for name in needed)


def test_the_same_model_gives_the_same_bytes_in_every_folder(build: Build, tmp_path: Path) -> None:
    code = (build().parent / "m.1.x86_64.o").read_bytes()
    for folder in (tmp_path / "a", tmp_path / "b c"):
        folder.mkdir()
        link_library(folder / "other name.so", [code], MANIFEST, WEIGHTS, architecture=HOST)
        assert (folder / "other name.so").read_bytes() == build().read_bytes()
        assert [path.name for path in folder.iterdir()] == ["other name.so"]


@pytest.mark.parametrize("name", ["ld", "cc"])
def test_the_linker_of_the_system_serves_too(build: Build, tmp_path: Path, name: str) -> None:
    linker = shutil.which(name)
    if linker is None:
        pytest.skip(f"no {name} here")
    code = (build().parent / "m.1.x86_64.o").read_bytes()
    path = tmp_path / "m.so"
    link_library(path, [code], MANIFEST, WEIGHTS, architecture=HOST, linker=[linker])
    assert right(load(path))
    exported = read_elf(memoryview(path.read_bytes())).symbols.values()
    assert len([symbol for symbol in exported if symbol.defined]) == 13


def test_many_libraries_live_in_one_process(build: Build) -> None:
    def three(*order: tuple[str, int]) -> None:
        models = [load(build(prefix, scale)) for prefix, scale in order]
        for _ in range(2):
            assert [right(m, scale) for m, (_, scale) in zip(models, order, strict=True)] == [
                True
            ] * 3

    three(("m", 1), ("n", 2), ("m", 3))
    three(("m", 3), ("n", 2), ("m", 1))
    three(("m", 1), ("m", 1), ("m", 1))


def test_names_of_libraries_opened_for_all_do_not_clash(build: Build) -> None:
    paths = [str(build("m", 1)), str(build("m", 3)), str(build("n", 2))]
    text = """
import ctypes, sys, os
from tests.unit.runtime.c_interface import CModel
for order in (sys.argv[1:], sys.argv[:0:-1]):
    libraries = [ctypes.CDLL(path, ctypes.RTLD_GLOBAL) for path in order]
    models = [CModel(lib, "n" if "lib n" in path else "m") for lib, path in zip(libraries, order)]
    print([int(model.scale()) for model in models])
"""
    assert run_python(text, *paths) == "[1, 3, 2]\n[2, 3, 1]\n"


def test_a_new_library_at_an_old_path_is_the_one_that_is_opened(
    build: Build, tmp_path: Path
) -> None:
    path = tmp_path / "model.so"
    models = []
    for scale in (1, 3):
        shutil.copy(build("m", scale), tmp_path / "new")
        (tmp_path / "new").replace(path)
        models.append(load(path))
    assert right(models[0], 1)
    assert right(models[1], 3)


def test_a_number_of_a_descriptor_used_again_names_the_new_library(
    build: Build, tmp_path: Path
) -> None:
    path = tmp_path / "stays.so"
    shutil.copy(build("m", 1), path)
    stays = ctypes.CDLL(str(path))  # so the loader keeps every name it has heard for this file
    assert right(load(path), 1)
    assert right(load(build("m", 3)), 3)
    assert CModel(stays).scale() == 1


def test_a_library_is_unloaded_with_its_last_user(build: Build) -> None:
    def loaded() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:xcompile-model")

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    content = build("m", 2).read_bytes()
    gc.collect()
    before = loaded(), descriptors()
    model = load(content)
    assert right(model, 2)
    assert loaded() > before[0]
    del model
    gc.collect()
    assert (loaded(), descriptors()) == before


def test_weights_come_from_a_file_too(build: Build, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(WEIGHTS)
    code = (build().parent / "m.1.x86_64.o").read_bytes()
    link_library(tmp_path / "m.so", [code], MANIFEST, tmp_path / "weights", architecture=HOST)
    assert (tmp_path / "m.so").read_bytes() == build().read_bytes()


def test_a_model_without_weights_is_linked(build: Build, tmp_path: Path) -> None:
    code = (build().parent / "m.1.x86_64.o").read_bytes()
    manifest = dataclasses.replace(MANIFEST, weights_bytes=0)
    link_library(tmp_path / "m.so", [code], manifest, b"", architecture=HOST)
    assert read_manifest(tmp_path / "m.so") == manifest


def test_a_data_object_holds_its_bytes_and_names(tmp_path: Path) -> None:
    data = random.Random(3).randbytes(1000)
    (tmp_path / "part").write_bytes(data[500:])
    for architecture, machine in (("x86_64", 62), ("aarch64", 183)):
        with (tmp_path / "data.o").open("wb") as target:
            pieces = [data[:500], tmp_path / "part"]
            symbols = [DataSymbol("a", 0, 1000), DataSymbol("b_2", 64, 8)]
            assert write_data_object(target, pieces, symbols, architecture, ".rodata.x") == 1000
        content = memoryview((tmp_path / "data.o").read_bytes())
        image = read_elf(content)
        assert (image.kind, image.machine) == (1, machine)
        assert image.sections[".rodata.x"].offset % 64 == 0
        assert bytes(section_bytes(content, image.sections[".rodata.x"])) == data
        assert bytes(section_bytes(content, image.sections[".strtab"])) == b"\0a\0b_2\0"


def test_a_gigabyte_of_weights_stands_aside_of_the_code(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elf, "_LARGE", 1 << 20)
    weights = WEIGHTS + bytes(1 << 20)
    manifest = dataclasses.replace(MANIFEST, weights_bytes=len(weights))
    code = (build().parent / "m.1.x86_64.o").read_bytes()
    link_library(tmp_path / "m.so", [code], manifest, weights, architecture=HOST)
    content = memoryview((tmp_path / "m.so").read_bytes())
    sections = read_elf(content).sections
    assert bytes(section_bytes(content, sections[".lrodata"])) == weights + b"\0"
    assert right(load(tmp_path / "m.so"))


def test_a_library_for_another_architecture_is_made_and_refused_here(build: Build) -> None:
    path = build(architecture="aarch64")
    assert read_manifest(path) == MANIFEST
    error = refused(lambda: load(path))
    assert (error.code, error.message) == ("XC7003", "the library is for aarch64, this is x86_64")


def test_a_library_for_a_cpu_with_more_features_is_refused(build: Build) -> None:
    error = refused(lambda: load(build(features=("avx", "brand-new-matrix-unit"))))
    assert error.code == "XC7003"
    assert "needs the CPU features brand-new-matrix-unit, which" in error.message
    model = CModel(ctypes.CDLL(str(build(features=("avx", "brand-new-matrix-unit")))), create=False)
    assert model.create() == 9


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for source in (
        *(tmp_path, tmp_path / "empty", tmp_path / "missing", "/dev/null", "/dev/zero", "a\0b"),
        *(b"", b"\x7fELF", b"\x7fELF" + bytes(60), b"\x7fELF\2\1\1" + b"\xff" * 200),
        Path(sys.executable).resolve(),
    ):
        assert refused(lambda source=source: load(source)).code == "XC7002"


def test_truncated_and_changed_libraries_are_refused(build: Build, tmp_path: Path) -> None:
    (tmp_path / "m.so").write_bytes(build().read_bytes())
    text = """
import random, sys
from pathlib import Path
from xcompile.runtime.errors import RuntimeModelError
from xcompile.runtime.library import load
whole, choose, refused = Path(sys.argv[1]).read_bytes(), random.Random(1), 0
for round in range(400):
    damaged = bytearray(whole)
    if round < 300:
        for _ in range(choose.randint(1, 3)):
            damaged[choose.randrange(64 if round % 3 == 0 else len(damaged))] ^= choose.randint(1, 255)
    else:
        del damaged[choose.randrange(len(damaged)):]
    try:
        if bytes(damaged) != whole:
            load(bytes(damaged))
            sys.exit("a damaged library was loaded")
    except RuntimeModelError as error:
        refused += error.code in ("XC7002", "XC7003")
print(refused)
"""
    assert int(run_python(text, str(tmp_path / "m.so"))) >= 399


def test_a_forged_section_is_never_worse_than_refused(build: Build) -> None:
    whole = build().read_bytes()
    section = read_elf(memoryview(whole)).sections[library_format.SECTION]
    choose, codes = random.Random(2), set()
    headers_at = int.from_bytes(whole[40:48], "little")
    for round in range(1500):
        forged = bytearray(whole)
        places = [
            (section.offset, 24),
            (section.offset + 64, 900),
            (headers_at, len(whole) - headers_at),
        ]
        begin, length = places[round % 3]
        for _ in range(choose.randint(1, 2)):
            forged[begin + choose.randrange(length)] = choose.randrange(256)
        try:
            library_format.seal(memoryview(forged))
            library_format.verify(memoryview(forged))
        except RuntimeModelError as error:
            codes.add(error.code)
    assert codes <= {"XC7002", "XC7003"}
    assert "XC7002" in codes


def test_weights_shorter_than_announced_are_refused(build: Build) -> None:
    forged = bytearray(build().read_bytes())
    forged[:] = forged.replace(b'"weights_bytes":16', b'"weights_bytes":99')
    library_format.seal(memoryview(forged))
    assert "weights are shorter" in refused(lambda: load(forged)).message


def test_an_object_that_needs_foreign_symbols_is_named(build: Build, tmp_path: Path) -> None:
    source = tmp_path / "f.c"
    source.write_text("float sgemm(float); float kernel_1(float x) { return sgemm(x); }")
    foreign = fake_model.compile_c(source, tmp_path / "f.o").read_bytes()
    uses = tmp_path / "g.c"
    uses.write_text(
        "float kernel_1(float); int m_init(void *c) { return kernel_1(*(float *)c) > 0; }"
    )
    user = fake_model.compile_c(uses, tmp_path / "g.o").read_bytes()
    code = (build().parent / "m.1.x86_64.o").read_bytes()
    out = tmp_path / "out"
    out.mkdir()
    for objects, message in [
        ([code, code], "duplicate symbol"),
        ([foreign], "m_prepare"),
        (
            [code.replace(b"m_init\0", b"m_xxxx\0"), foreign, user],
            "symbols that no library has: sgemm",
        ),
    ]:
        error = refused(
            lambda objects=objects: link_library(
                out / "m.so", objects, MANIFEST, WEIGHTS, architecture=HOST
            )
        )
        assert error.code == "XC7005"
        assert message in error.message
        assert list(out.iterdir()) == []


@pytest.mark.parametrize("name", [None, "ld", "cc"])
def test_code_that_calls_libm_brings_libm_with_it(
    build: Build, tmp_path: Path, name: str | None
) -> None:
    linker = [shutil.which(name) or pytest.skip(f"no {name} here")] if name else None
    source = tmp_path / "f.c"
    source.write_text(
        "double fmod(double, double); float fmodf(float, float);"
        "int m_init(void *c) { volatile double x = 7.5; return 10 * fmod(x, 2.0) + fmodf(x, 4.0f); }"
    )
    calls = fake_model.compile_c(source, tmp_path / "f.o", "-fno-builtin").read_bytes()
    code = (build().parent / "m.1.x86_64.o").read_bytes().replace(b"m_init\0", b"m_xxxx\0")
    link_library(
        tmp_path / "m.so", [code, calls], MANIFEST, WEIGHTS, architecture=HOST, linker=linker
    )
    content = (tmp_path / "m.so").read_bytes()
    assert b"\0libm.so.6\0" in content
    assert b"libm" not in build().read_bytes()
    assert (
        refused(lambda: load(content)).message == "initialization: the model answered with code 18"
    )


def test_arguments_that_make_no_library_are_refused(build: Build, tmp_path: Path) -> None:
    code = (build().parent / "m.1.x86_64.o").read_bytes()

    def link(
        path: Path = tmp_path / "m.so", manifest: Manifest = MANIFEST, weights: bytes = WEIGHTS,
        architecture: str = HOST, linker: list[str] | None = None, objects: tuple[bytes, ...] = (code,),
    ) -> None:  # fmt: skip
        link_library(path, objects, manifest, weights, architecture=architecture, linker=linker)

    for call, code_, message in [
        (lambda: link(path=tmp_path / "missing" / "m.so"), "XC7001", "cannot be written"),
        (lambda: link(weights=b"123"), "XC7005", "the weights are 3 bytes, the manifest says 16"),
        (lambda: link(architecture="aarch64"), "XC7005", "not one for aarch64"),
        (lambda: link(architecture="riscv64"), "XC6007", "riscv64"),
        (lambda: link(objects=(b"garbage",)), "XC7005", "not one for x86_64"),
        (lambda: link(linker=["/missing/ld"]), "XC7005", "could not be run"),
        (lambda: link(linker=["false"]), "XC7005", "failed with code 1"),
    ]:
        error = refused(call)
        assert error.code == code_
        assert message in error.message
    for prefix in ("1x", "a b", "pthread", "xc", "m; } evil", "ü"):
        bad = dataclasses.replace(MANIFEST, prefix=prefix)
        assert refused(lambda bad=bad: link(manifest=bad)).code == "XC6005"
    assert list(tmp_path.iterdir()) == []


def test_without_a_linker_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name == "ld" else None)
    assert find_linker(HOST) == ["/bin/ld"]
    error = refused(lambda: find_linker("aarch64"))
    assert error.code == "XC7004"
    assert "pip install ziglang" in str(error)
