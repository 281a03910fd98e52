"""The links, and what a wheel built from a zip download or a source distribution holds."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKS = ("compiler", "dialects", "passes", "runtime", "frontends")
NATIVE = ROOT / "runtime" / "native"
TAG = "py3-none-manylinux_2_17_"


def build(kind: str, source: Path, out: Path) -> Path:
    """Builds the "wheel" or "sdist" of the tree at `source`, without network and PATH, and returns the file."""
    pytest.importorskip("ziglang", reason="the build compiles the C runtime with ziglang")
    out.mkdir()
    call = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    without_compilers = {**os.environ, "PATH": ""}
    subprocess.run(
        [sys.executable, "-c", call, str(out)], cwd=source, env=without_compilers, check=True
    )
    (built,) = out.iterdir()
    return built


@pytest.fixture
def zip_download(tmp_path: Path) -> Path:
    """The tree of HEAD as a zip tool that knows no symbolic links extracts it."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    folder = tmp_path / "zip"
    folder.mkdir()
    archive = folder / "xcompile.zip"
    command = ["git", "archive", "--format=zip", "--prefix=tree/", "-o", str(archive), "HEAD"]
    subprocess.run(command, cwd=ROOT, check=True)
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    return folder / "tree"


@pytest.mark.parametrize("name", LINKS)
def test_the_package_links_to_the_top_level_folder(name: str) -> None:
    link = ROOT / "xcompile" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..", name)
    assert (link / "__init__.py").is_file()


def test_the_prebuilt_runtime_is_not_older_than_its_sources() -> None:
    built = list((NATIVE / "prebuilt").glob("*/*"))
    if not built:
        pytest.skip("the C runtime is not built here")
    newest = max(path.stat().st_mtime for path in NATIVE.glob("*.[ch]"))
    assert min(path.stat().st_mtime for path in built) >= newest, "run python build_native.py"


def test_a_wheel_of_a_zip_download_holds_the_package_and_nothing_else(
    zip_download: Path, tmp_path: Path
) -> None:
    assert (zip_download / "xcompile" / "compiler").read_text() == "../compiler"
    wheel = build("wheel", zip_download, tmp_path / "out")
    assert TAG in wheel.name
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    for name in LINKS:
        assert f"xcompile/{name}/__init__.py" in names
    assert "xcompile/compiler/support/errors.py" in names
    for arch in ("x86_64", "aarch64"):
        assert f"xcompile/runtime/native/prebuilt/{arch}-linux/libxcompile_rt.so" in names
        assert f"xcompile/runtime/native/prebuilt/{arch}-linux/xcompile_rt.o" in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"xcompile"}


def test_a_wheel_of_a_source_distribution_is_the_wheel_of_the_tree(
    zip_download: Path, tmp_path: Path
) -> None:
    sdist = build("sdist", zip_download, tmp_path / "sdist")
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path, filter="data")
    tree = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert (tree / "build_native.py").is_file()
    direct = zipfile.ZipFile(build("wheel", zip_download, tmp_path / "direct"))
    again = zipfile.ZipFile(build("wheel", tree, tmp_path / "again"))
    assert {name: direct.read(name) for name in direct.namelist() if "dist-info" not in name} == {
        name: again.read(name) for name in again.namelist() if "dist-info" not in name
    }


@pytest.mark.full
def test_a_zip_download_installs_into_a_new_environment_and_passes_its_tests(
    zip_download: Path, tmp_path: Path
) -> None:
    """The README's second command; needs a package index."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    clean["XCOMPILE_CACHE"] = str(tmp_path / "cache")

    def call(*words: str | Path) -> None:
        subprocess.run(words, cwd=zip_download, env=clean, check=True)

    call(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--editable", ".[aot,test]")
    call(python, "-c", "import xcompile.compiler.api, xcompile.runtime.native_library")
    call(python, "-m", "pytest", "-q", "-n", "2", "--hypothesis-profile=ci")
