"""Makes two runs draw the same random numbers."""

from __future__ import annotations

import random

import numpy as np
import torch


class RandomNumbers:
    """The states of the random number generators of Python, numpy and torch when this object was made."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state()
        self._torch = torch.get_rng_state()
        if torch.cuda.is_initialized():
            self._cuda = torch.cuda.get_rng_state_all()
        else:
            self._cuda = []

    def put_back(self) -> None:
        """Restore the states, so that the program draws the same numbers again."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
