"""The one exception a user of the compiler sees, and the table of its codes.

A code is declared here once and described in `docs/errors.md`, which is this table printed
(`python -m xcompile.compiler.support.errors > docs/errors.md`). The first digit says whose matter it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RANGES: Final[dict[str, str]] = {
    "XC1": "Reading the model",
    "XC2": "The graph: meaning, types and shapes",
    "XC3": "Passes, patterns and pipelines",
    "XC4": "Code generation and workers",
    "XC5": "Running a model and its arguments",
    "XC6": "Options, targets and the command line",
    "XC7": "Artifacts, packaging and linking",
}

CODES: Final[dict[str, str]] = {
    "XC1001": "the model file cannot be read",
    "XC1002": "the file is not a model of a known format",
    "XC1003": "the model is corrupt or truncated",
    "XC1004": "external data is missing, too short or outside the model's folder",
    "XC1005": "an initializer's bytes do not fit its type and shape",
    "XC1006": "the model uses ops that are not supported",
    "XC1007": "the opset or IR version is not supported",
    "XC1008": "a name is used before it is defined, or defined twice",
    "XC1009": "the graph has a cycle",
    "XC1010": "an attribute is missing, unknown or has the wrong type",
    "XC1011": "an op has too few or too many inputs or outputs",
    "XC1012": "a data type is not supported",
    "XC1013": "the model exceeds a limit of the reader",
    "XC1014": "a weight file cannot be read or written",
    "XC2001": "an op does not verify",
    "XC2002": "an operand has the wrong data type",
    "XC2003": "an operand has the wrong rank",
    "XC2004": "sizes do not match",
    "XC2005": "shapes do not broadcast",
    "XC2006": "an axis is out of range",
    "XC2007": "an attribute's value is not legal for the operands",
    "XC2008": "a size is negative or overflows",
    "XC2009": "a result type does not follow from the operands",
    "XC2010": "the shape of a value cannot be determined",
    "XC2011": "a reference evaluation failed",
    "XC2012": "the text of a module cannot be parsed",
    "XC2013": "a constant index is out of range",
    "XC3001": "no such pass",
    "XC3002": "a pipeline cannot be parsed",
    "XC3003": "a pass option is unknown or has the wrong type",
    "XC3004": "a pass failed",
    "XC3005": "the module does not verify after a pass",
    "XC3006": "rewriting does not come to an end",
    "XC3007": "an op was used after it was replaced or erased",
    "XC3008": "a pass changed what the model computes",
    "XC3009": "a pass or plug-in file cannot be loaded",
    "XC3010": "an op cannot be lowered",
    "XC3011": "a pass crashed, took too long or ran out of memory",
    "XC4001": "the worker process died",
    "XC4002": "the worker process ran out of time",
    "XC4003": "the worker process ran out of memory",
    "XC4004": "an emitter failed",
    "XC4005": "lowering left ops that are not LLVM's",
    "XC4006": "LLVM refused the module",
    "XC4007": "a schedule is not legal for its kernel and target",
    "XC4008": "the object code cannot be loaded",
    "XC4009": "the worker's answer cannot be understood",
    "XC4010": "no emitter takes the kernel",
    "XC4011": "a kernel would need a place that only data say",
    "XC4012": "the program of a model does not verify",
    "XC4013": "a kernel cannot be written for the GPU",
    "XC5001": "an input is missing or unknown",
    "XC5002": "an input has the wrong data type",
    "XC5003": "an input has the wrong shape",
    "XC5004": "sizes of the inputs contradict each other",
    "XC5005": "an output array cannot be used",
    "XC5006": "the model failed while running",
    "XC5007": "the arena is too small or busy",
    "XC5008": "no GPU, or no driver for it, is at hand",
    "XC5009": "the GPU, or its emulation, failed",
    "XC6001": "no such target",
    "XC6002": "no such precision",
    "XC6003": "the precision is not available on the target",
    "XC6004": "no such option",
    "XC6005": "an option has the wrong value",
    "XC6006": "the command line is incomplete",
    "XC6007": "this host cannot run code of the target",
    "XC6008": "a precision needs calibration",
    "XC6009": "calibration data or a calibration table cannot be used",
    "XC6010": "an accuracy budget cannot be met",
    "XC7001": "the artifact cannot be written",
    "XC7002": "the artifact cannot be read",
    "XC7003": "the artifact was made for another version, host or target",
    "XC7004": "no linker is at hand",
    "XC7005": "the linker failed",
    "XC7006": "the runtime library is missing from the installation",
    "XC7007": "another engine runs a part of the model, so it cannot be saved",
}

UNSUPPORTED: Final = frozenset({"XC1006", "XC1012", "XC2010", "XC4011"})
"""Codes of what is no fault of the model: an op, a type, a rank or a size that is data, which the compiler lacks."""


class CompileError(Exception):
    """A failure that the person who called the compiler can understand and act upon.

    The text is one line: code and message, then the model node and the pass where they are known, then
    what to do. Whoever catches it and knows a missing node or pass sets that attribute and raises it again.

    Attributes:
        code: a key of `CODES`, such as "XC2007".
        message: what is wrong, in the words of the user's model.
        node: the name of the model node to blame, if there is one.
        pass_name: the pass that was running, if there was one.
        help: what the user can do about it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        node: str | None = None,
        pass_name: str | None = None,
        help: str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.node = node
        self.pass_name = pass_name
        self.help = help

    def __str__(self) -> str:
        text = f"{self.code} {self.message}"
        if self.node is not None:
            text += f", at node '{self.node}'"
        if self.pass_name is not None:
            text += f", in pass '{self.pass_name}'"
        if self.help is not None:
            text += f" (help: {self.help})"
        return _one_line(text)

    def to_json(self) -> dict[str, str | None]:
        """The error as a JSON object, as a worker process sends it."""
        return {
            "code": self.code,
            "message": self.message,
            "node": self.node,
            "pass_name": self.pass_name,
            "help": self.help,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, str | None]) -> CompileError:
        """The error that `to_json` described.

        Raises:
            KeyError: the code or the message is missing.
        """
        return cls(
            fields["code"] or "",
            fields["message"] or "",
            node=fields.get("node"),
            pass_name=fields.get("pass_name"),
            help=fields.get("help"),
        )


def errors_page() -> str:
    """The text of `docs/errors.md`: every code under the heading of its range."""
    lines = [
        "# Error codes",
        "",
        "Printed by `python -m xcompile.compiler.support.errors > docs/errors.md`; a test compares.",
    ]
    for prefix, heading in RANGES.items():
        lines += ["", f"## {prefix}xxx: {heading}", "", "| code | title |", "|---|---|"]
        lines += [
            f"| {code} | {title} |" for code, title in CODES.items() if code.startswith(prefix)
        ]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """Escapes line breaks and control characters, which node names of a hostile model may carry."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


if __name__ == "__main__":
    print(errors_page(), end="")
