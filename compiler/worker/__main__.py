"""`python -m xcompile.compiler.worker job.json` runs the job of a reproducer in this process."""

import sys

from xcompile.compiler.worker.process import reproduce

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m xcompile.compiler.worker JOB.json")
    sys.exit(reproduce(sys.argv[1]))
