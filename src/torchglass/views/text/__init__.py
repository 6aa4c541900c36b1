"""How rows look as text: words, columns, colours."""
