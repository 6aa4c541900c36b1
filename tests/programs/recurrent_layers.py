"""LSTM and GRU with packed sequences: results that are nested tuples and a class of torch's own."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def main():
    torch.manual_seed(0)
    lstm, gru = nn.LSTM(3, 4, num_layers=2, batch_first=True), nn.GRUCell(3, 4)
    x = torch.randn(2, 5, 3)
    packed = pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
    out, (h, c) = lstm(packed)
    padded, lengths = pad_packed_sequence(out, batch_first=True)
    padded.sum().backward()
    return padded, lengths, h, c, gru(x[:, 0]), lstm.weight_ih_l0.grad
