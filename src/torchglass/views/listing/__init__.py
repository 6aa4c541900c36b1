"""Your file with the shapes in its margin."""
