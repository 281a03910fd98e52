"""The command `xcompile`: one file a command. Nothing of the compiler is imported before it is used."""
