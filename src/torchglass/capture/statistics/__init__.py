"""What is in a value: counted and summed where it lies, without a torch function, a copy or a wait."""
