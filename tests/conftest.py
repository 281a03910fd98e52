"""Settings of every test: hypothesis is derandomized in the project's checks; Ctrl-C is what it is in a terminal;
modules are verified after every pass.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("default")

# For programs that tests start too; set to 0, only what a pass changed is verified, as in a compile.
os.environ.setdefault("XCOMPILE_VERIFY_EACH", "1")

# A shell starts its background jobs with SIGINT ignored, which the processes that tests interrupt would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
