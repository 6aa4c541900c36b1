"""Computes when it is imported."""

import torch

TOTAL = torch.ones(2).sum()
