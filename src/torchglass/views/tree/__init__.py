"""The tree: every call with its shapes."""
