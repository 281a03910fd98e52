"""`python -m xcompile` is the command `xcompile`."""

from xcompile.compiler.cli.main import main

if __name__ == "__main__":
    main()
