"""Libraries of the model in `fake_model.c`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.runtime import fake_model
from tests.unit.runtime.fake_model import HALF_WEIGHTS, MANIFEST
from xcompile.compiler.codegen.link import link_library

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Links the model under a prefix, with a factor; the same arguments give the same file."""
    folder = tmp_path_factory.mktemp("libraries")

    @functools.cache
    def make(
        prefix: str = "m", scale: int = 1, architecture: str = "x86_64", **changes: object
    ) -> Path:
        code = fake_model.model_object(folder, prefix, scale, architecture).read_bytes()
        manifest = dataclasses.replace(MANIFEST, prefix=prefix, **changes)
        path = folder / f"lib {prefix} {scale} {architecture} {len(changes)}.so"
        link_library(path, [code], manifest, HALF_WEIGHTS.tobytes(), architecture=architecture)
        return path

    return make
