"""Random numbers: dropout, sampling and the generator's state, in an order that must not change."""

import torch
import torch.nn.functional as F


def main():
    torch.manual_seed(0)
    x = torch.ones(4, 4)
    dropped = F.dropout(x, 0.5)
    noise = x.clone().normal_()
    picks = torch.multinomial(x, 2)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        apart = torch.rand(2)
    coins = torch.bernoulli(x * 0.5)
    return dropped, noise, picks, apart, coins, torch.get_rng_state()
