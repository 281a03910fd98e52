"""The family of transposed convolutions: direct convolution, one for each phase of the output."""

from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.anchored import static
from xcompile.compiler.codegen.cpu.images import ConvPlan
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule.conv import ConvProblem
from xcompile.compiler.schedule.phases import phase_weights, transposed


class ConvTransposePlan(ConvPlan):
    """Transposed convolution of two axes and one group."""

    family = "conv-transpose"

    def find_problem(self) -> ConvProblem:
        op: Any = self.op
        if op.groups > 1:
            no_match("there are several groups")
        _, oc, *kernel = static(self.kernel.shape(op.w))
        window, phases = transposed(kernel, op.strides, op.pads, op.dilations, op.output_pads)
        if min(window.pads) < 0:
            no_match("padding drops whole windows")
        return ConvProblem(
            self.n, self.channels, self.h, self.w, oc, window, 1, self.layout, phases
        )

    def weights(self, weight: np.ndarray) -> np.ndarray:
        op: Any = self.op
        assert self.problem.phases is not None
        found = phase_weights(weight, self.problem.phases, op.dilations)
        return found.reshape(-1, *found.shape[2:])
