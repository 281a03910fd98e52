"""The family of transposed convolutions: direct convolution, one for each phase of the output."""

from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.anchored import static
from xcompile.compiler.codegen.cpu.images import ConvPlan
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule.conv import ConvProblem
from xcompile.compiler.schedule.phases import phase_weights, transposed
from xcompile.compiler.schedule.window import of_volume


class ConvTransposePlan(ConvPlan):
    """Transposed convolution of two axes or three."""

    family = "conv-transpose"

    def find_problem(self) -> ConvProblem:
        op: Any = self.op
        _, oc, *kernel = static(self.kernel.shape(op.w))
        window, phases = transposed(kernel, op.strides, op.pads, op.dilations, op.output_pads)
        if min(window.pads) < 0:
            no_match("padding drops whole windows")
        depth, window = of_volume(window) if len(kernel) == 3 else (None, window)
        return ConvProblem(
            self.n, self.channels, self.h, self.w, oc * op.groups, window, op.groups, self.layout, phases,
            d=self.d, depth=depth, **self.kinds(),
        )  # fmt: skip

    def weights(self, weight: np.ndarray) -> np.ndarray:
        op: Any = self.op
        assert self.problem.phases is not None
        groups = np.split(weight, op.groups)
        found = [phase_weights(part, self.problem.phases, op.dilations) for part in groups]
        return np.concatenate(found, axis=1).reshape(-1, *found[0].shape[2:])
