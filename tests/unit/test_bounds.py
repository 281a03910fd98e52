"""What is known of the numbers that ops get."""

from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.rewrite import walk
from xcompile.compiler.ir.text import parse_module
from xcompile.dialects.nn.unary import Cast
from xcompile.passes.kernel.bounds import plain_numbers

TEXT = """
func.func @main(%x: tensor<1048576x1048576xi32>) -> tensor<1048576x1048576xi32> {
  %s = "nn.const"() {value = dense<NUMBER> : tensor<1048576x1048576xf32>} : () -> tensor<1048576x1048576xf32>
  %0 = "nn.cast"(%x) {to = "f32"} : (tensor<1048576x1048576xi32>) -> tensor<1048576x1048576xf32>
  %1 = "nn.mul"(%0, %s) : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  %2 = "nn.cast"(%1) {to = "i32"} : (tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xi32>
  return %2 : tensor<1048576x1048576xi32>
}
"""


def test_of_a_constant_of_8_terabytes_all_alike_one_number_is_looked_at() -> None:
    assert plain("0.5")
    assert not plain("0x7F800000")  # infinity


def plain(number: str) -> bool:
    """What is said of the cast to integers."""
    with context():
        module = parse_module(TEXT.replace("NUMBER", number))
        casts = [op for each in walk(module) if isinstance(op := view(each), Cast)]
        return plain_numbers(casts[-1], module.weights)
