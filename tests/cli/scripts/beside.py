"""Imported by model.py from its own folder."""

import torch


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2
