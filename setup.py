"""What `pyproject.toml` cannot say: the links, the C runtime and the wheel's tag."""

import platform
import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
LINKS = ("compiler", "dialects", "passes", "runtime", "frontends")

sys.path.insert(0, str(ROOT))  # a PEP 517 build does not have the project's folder on the path

from build_native import build_native  # noqa: E402


def repair_links() -> None:
    """Replaces each `xcompile/NAME` that a zip tool wrote as a text file by the folder it names."""
    for name in LINKS:
        link = ROOT / "xcompile" / name
        if not link.is_file():
            continue
        target = link.read_text(encoding="utf-8").strip()
        link.unlink()
        try:
            link.symlink_to(target, target_is_directory=True)
        except OSError:  # a file system without links
            shutil.copytree(ROOT / "xcompile" / target, link)


class BuildPy(build_py):
    """Builds the C runtime first, so that its objects are found as package data."""

    def run(self) -> None:
        build_native()
        super().run()


class BinaryDistribution(Distribution):
    """A distribution with machine code in it, though without an extension module."""

    def has_ext_modules(self) -> bool:
        return True


class BdistWheel(bdist_wheel):
    """Tags the wheel for every Python 3 and every glibc from 2.17 on."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", f"manylinux_2_17_{platform.machine()}"


repair_links()
setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel},
)
