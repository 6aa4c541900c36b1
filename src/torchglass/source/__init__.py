"""How Python is read: source texts, instructions and the syntax around them. Standard library only."""
