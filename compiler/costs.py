"""A cost model: how many cycles each launch of a compiled model takes, from what it does and what its target is.

A launch takes the cycles in which its target starts its vector instructions, and those in which its bytes come, each
by a factor of the kernel's family, and a fixed time. The factors say how far a family is from that limit. They were
fitted by `bench/fit_costs.py` on random kernels, on none of the models that predictions are judged by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.artifact import Artifact, KernelFacts
from xcompile.compiler.codegen.program.program import Launch
from xcompile.compiler.support.dims import Dim, evaluate, parse
from xcompile.compiler.target.speeds import speeds_of
from xcompile.compiler.target.target import Target


@dataclass(frozen=True)
class Cost:
    """How far kernels are from what their target could do.

    Attributes:
        products: cycles for each cycle in which the target starts the instructions of products.
        steps: likewise of everything else.
        traffic: likewise for each cycle in which the bytes of operands and results come.
        launch: cycles of a launch.
    """

    products: float
    steps: float
    traffic: float
    launch: float


@dataclass(frozen=True)
class Features:
    """What a launch does, in cycles of the target's limits.

    Attributes:
        family: of the kernel.
        form: the instruction of its products.
        products: cycles in which they start.
        steps: cycles in which the other instructions start.
        traffic: cycles in which the bytes come from where they lie.
    """

    family: str
    form: str
    products: float
    steps: float
    traffic: float


COSTS: Mapping[tuple[str, str], Cost] = {
    ("contraction", "fma"): Cost(1.08, 0.848, 0.297, 9.17e03),
    ("contraction", "pairs"): Cost(0.746, 0.216, 0.0673, 6.79e03),
    ("contraction", "vpdpbusd"): Cost(1.06, 0.347, 0.371, 2.82e03),
    ("conv", "fma"): Cost(1.05, 1.44, 0, 2.32e03),
    ("depthwise", "fma"): Cost(0.924, 1.39, 0.155, 0),
    ("global-pool", ""): Cost(0, 0.573, 0.28, 2.75e03),
    ("integer-conv", "pairs"): Cost(0.759, 1.07, 0, 1.25e03),
    ("integer-conv", "vpdpbusd"): Cost(1.05, 0.7, 0, 638),
    ("integer-depthwise", "pairs"): Cost(0.963, 1.29, 0, 1.22e04),
    ("integer-depthwise", "vpdpbusd"): Cost(3.35, 0.741, 0, 1.03e04),
    ("map", ""): Cost(0, 0.243, 1.57, 6.61e03),
    ("pool", ""): Cost(0, 3.6, 0, 1.84e03),
    ("rows", ""): Cost(0, 1.01, 0.375, 3.39e03),
    ("winograd", "fma"): Cost(1.2, 1.33, 0, 0),
}
"""By family and form of products."""

_OTHER = Cost(2.0, 2.0, 1.0, 1000.0)
"""Of what nothing is known."""


def cost_of(family: str, form: str) -> Cost:
    """The cost of a family's kernels with products of a form; where that was not seen, of the family's others."""
    others = (cost for (name, _), cost in COSTS.items() if name == family)
    return COSTS.get((family, form)) or next(others, _OTHER)


def cycles(features: Features) -> float:
    """The cycles of a launch on one core."""
    cost = cost_of(features.family, features.form)
    return (
        cost.products * features.products
        + cost.steps * features.steps
        + cost.traffic * features.traffic
        + cost.launch
    )


def features_of(
    artifact: Artifact, target: Target, shapes: Sequence[Sequence[int]]
) -> list[Features]:
    """What each launch of a model does, in the order of the program; sizes that depend on data count as nothing.

    Args:
        artifact: the model; its code is not needed.
        target: what it was compiled for.
        shapes: of the inputs, in order.
    """
    sizes = artifact.program.bindings(shapes)
    speeds = speeds_of(target)
    constants = artifact.manifest.weights_bytes + artifact.manifest.prepared_bytes
    found: list[Features] = []
    for launch in artifact.program.launches:
        facts = artifact.kernels[launch.symbol]
        products, steps = _work(launch, facts, sizes)
        fixed, moved = 0, 0
        for place, length in zip(launch.places, launch.lengths, strict=True):
            if place.space in ("weights", "prepared"):
                fixed += _size(length, sizes)
            else:
                moved += _size(length, sizes)
        traffic = fixed / _speed(constants, target, speeds.l2, speeds.l3, speeds.memory)
        traffic += moved / _speed(2 * moved, target, speeds.l2, speeds.l3, speeds.memory)
        ports = target.fma_ports
        found.append(Features(facts.family, facts.form, products / ports, steps / ports, traffic))
    return found


def _speed(held: int, target: Target, l2: float, l3: float, memory: float) -> float:
    """Bytes a cycle from the nearest cache that holds so many bytes."""
    if held <= target.l2:
        return l2
    return l3 if held <= target.l3 else memory


def _work(launch: Launch, facts: KernelFacts, sizes: Mapping[str, int]) -> tuple[int, int]:
    own = {f"d{i}": _size(dim, sizes) for i, dim in enumerate(launch.sizes)}
    return _size(parse(facts.products), own), _size(parse(facts.steps), own)


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The value of a size; 0 when it depends on data."""
    try:
        return evaluate(dim, sizes)
    except KeyError:
        return 0
