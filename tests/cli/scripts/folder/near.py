"""Found because the folder comes first."""

NAME = "near"
