"""The default pipelines of the targets, as text."""

from collections.abc import Mapping

from xcompile.compiler.target.target import Target

PIPELINES: Mapping[str, str] = {
    "cpu": "nn-assign-layout,nn-choose-winograd,kernel-form",
}
"""What `@name` stands for in pipeline text."""


def default_pipeline(target: Target) -> str:
    """The pipeline text of a target."""
    return "@cpu"
