"""The tests, laid out like src/torchglass; programs and zoo are what they record."""
