"""From an instruction to the source: file, line, columns, expression and names; standard library only."""
