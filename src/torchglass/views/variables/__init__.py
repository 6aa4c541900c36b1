"""The life of each variable."""
