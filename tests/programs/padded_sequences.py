"""Sequences of different lengths: padding, packing, and a CTC loss with lengths as tensors."""

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence


def main():
    torch.manual_seed(0)
    sequences = [torch.randn(4, 3), torch.randn(2, 3)]
    padded = pad_sequence(sequences, batch_first=True)
    unpacked, lengths = pad_packed_sequence(pack_sequence(sequences))
    scores = torch.randn(5, 2, 4, requires_grad=True)
    targets = torch.tensor([[1, 2], [3, 1]])
    loss = F.ctc_loss(scores.log_softmax(-1), targets, torch.tensor([5, 4]), torch.tensor([2, 1]))
    loss.backward()
    fit = torch.linalg.lstsq(torch.randn(4, 3, dtype=torch.complex64), torch.randn(4, 2, dtype=torch.complex64))
    # The last bits of a fit depend on where in memory it lies.
    solution, residuals = (torch.view_as_real(fit.solution) * 1000).round(), (fit.residuals * 1000).round()
    return padded, unpacked, lengths, loss, scores.grad, solution, residuals
