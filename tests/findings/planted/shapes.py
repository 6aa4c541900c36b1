"""Shapes that fit by broadcasting, and axes that are mixed up."""

import torch
import torch.nn.functional as F
from torch import nn


def regression():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(16, 4), torch.randn(16)


def broadcast_in_mse():
    model, optimizer, x, y = regression()
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)  # finds: broadcast
        loss.backward()
        optimizer.step()


def broadcast_in_mse_fixed():
    model, optimizer, x, y = regression()
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()


def broadcast_in_module_loss():
    model, optimizer, x, y = regression()
    criterion = nn.L1Loss()
    for _ in range(3):
        optimizer.zero_grad()
        prediction = model(x)
        loss = criterion(prediction, y)  # finds: broadcast
        loss.backward()
        optimizer.step()


def broadcast_in_module_loss_fixed():
    model, optimizer, x, y = regression()
    criterion = nn.L1Loss()
    for _ in range(3):
        optimizer.zero_grad()
        prediction = model(x)
        loss = criterion(prediction, y[:, None])
        loss.backward()
        optimizer.step()


def broadcast_by_hand():
    model, optimizer, x, y = regression()
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()  # finds: broadcast
        loss.backward()
        optimizer.step()


def broadcast_by_hand_fixed():
    model, optimizer, x, y = regression()
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((model(x) - y.unsqueeze(1)) ** 2).mean()
        loss.backward()
        optimizer.step()


def broadcast_lookalike_pairwise():
    model, optimizer, x, _ = regression()
    z = model(x)
    distances = (z.view(-1, 1) - z.view(1, -1)).abs().mean()
    more = (z.squeeze(1).unsqueeze(1) - z.squeeze(1)).pow(2).mean()
    (distances + more).backward()
    optimizer.step()


def broadcast_in_policy_gradient():
    torch.manual_seed(0)
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=0.01)
    states, returns = torch.randn(12, 4), torch.randn(12)
    for _ in range(2):
        log_prob = F.log_softmax(actor(states), dim=-1)[:, 0]
        value = critic(states)
        advantage = returns - value.detach()  # finds: broadcast
        policy_loss = -(log_prob * advantage).mean()
        loss = policy_loss + F.mse_loss(value.squeeze(1), returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def broadcast_in_policy_gradient_fixed():
    torch.manual_seed(0)
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=0.01)
    states, returns = torch.randn(12, 4), torch.randn(12)
    for _ in range(2):
        log_prob = F.log_softmax(actor(states), dim=-1)[:, 0]
        value = critic(states).squeeze(-1)
        advantage = returns - value.detach()
        policy_loss = -(log_prob * advantage).mean()
        loss = policy_loss + F.mse_loss(value, returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class ConvThenRnn(nn.Module):
    def __init__(self, swap):
        super().__init__()
        self.embed, self.conv, self.head = nn.Linear(3, 6), nn.Conv1d(6, 6, 3, padding=1), nn.Linear(6, 2)
        self.swap = swap

    def forward(self, x):
        h = self.embed(x)
        b, t, c = h.shape
        if self.swap:
            h = h.transpose(1, 2)
        else:
            h = h.view(b, c, t)  # finds: view-for-transpose  [conv]
        return self.head(self.conv(h).mean(2))


def view_before_conv():  # [conv]
    train_classifier(ConvThenRnn(False), torch.randn(4, 10, 3), torch.randint(0, 2, (4,)))


def view_before_conv_fixed():
    train_classifier(ConvThenRnn(True), torch.randn(4, 10, 3), torch.randint(0, 2, (4,)))


def train_classifier(model, x, y, rounds=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(rounds):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


class Attention(nn.Module):
    def __init__(self, wrong_split=False, wrong_merge=False):
        super().__init__()
        self.qkv, self.out, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 3)
        self.wrong_split, self.wrong_merge = wrong_split, wrong_merge

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = self.split(q, b, t), self.split(k, b, t), self.split(v, b, t)
        w = F.softmax(q @ k.transpose(-2, -1) / 2.0, dim=-1)
        h = w @ v
        if self.wrong_merge:
            h = h.reshape(b, t, c)  # finds: view-for-transpose  [merge]
        else:
            h = h.transpose(1, 2).reshape(b, t, c)
        return self.head(self.out(h)[:, 0])

    def split(self, z, b, t):
        if self.wrong_split:
            return z.contiguous().view(b, 2, t, 4)  # finds: view-for-transpose  [split]
        return z.view(b, t, 2, 4).transpose(1, 2)


def heads_split_by_view():  # [split]
    train_classifier(Attention(wrong_split=True), torch.randn(3, 7, 8), torch.randint(0, 3, (3,)))


def heads_merged_by_view():  # [merge]
    train_classifier(Attention(wrong_merge=True), torch.randn(3, 7, 8), torch.randint(0, 3, (3,)))


def heads_fixed():
    train_classifier(Attention(), torch.randn(3, 7, 8), torch.randint(0, 3, (3,)))


def view_lookalike_patches():
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    patches = x.reshape(2, 3, 4, 2, 4, 2).permute(0, 2, 4, 1, 3, 5).reshape(2, 16, 12)
    flat = patches.flatten(1).view(2, 16, 12).reshape(-1, 12)
    flat.sum().backward()


def scores_divided_by_row_sum():
    torch.manual_seed(0)
    q, k = nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.randn(6, 4)
    optimizer = torch.optim.SGD([*q.parameters(), *k.parameters()], lr=0.1)
    scores = (q(x) @ k(x).T).exp()
    weights = scores / scores.sum(1)  # finds: keepdim
    (weights @ x).pow(2).mean().backward()
    optimizer.step()


def scores_divided_by_row_sum_fixed():
    torch.manual_seed(0)
    q, k = nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.randn(6, 4)
    optimizer = torch.optim.SGD([*q.parameters(), *k.parameters()], lr=0.1)
    scores = (q(x) @ k(x).T).exp()
    weights = scores / scores.sum(1, keepdim=True)
    (weights @ x).pow(2).mean().backward()
    optimizer.step()


def rows_centred_by_row_mean():
    x = torch.randn(5, 5)
    centred = x - x.mean(dim=1)  # finds: keepdim
    print(centred.std().item())


def columns_centred_lookalike():
    x = torch.randn(5, 5)
    centred = x - x.mean(dim=0)
    print(centred.std().item())


class Sequence(nn.Module):
    def __init__(self, batch_first, last):
        super().__init__()
        self.rnn = nn.LSTM(3, 6, batch_first=batch_first)
        self.head = nn.Linear(6, 2)
        self.last = last

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.head(self.last(out))


def last_sample_for_last_step():
    last = lambda out: out[:, -1]  # finds: sequence-axis
    train_classifier(Sequence(False, last), torch.randn(5, 9, 3), torch.randint(0, 2, (5,)))


def last_step_fixed():
    last = lambda out: out[:, -1, :]
    train_classifier(Sequence(True, last), torch.randn(5, 9, 3), torch.randint(0, 2, (5,)))


def last_entry_of_batch_first():
    model = Sequence(True, lambda out: out[-1])  # finds: sequence-axis
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(5, 9, 3), torch.randint(0, 2, (9,))
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def last_entry_lookalike():
    model = Sequence(False, lambda out: out[-1])
    train_classifier(model, torch.randn(9, 5, 3), torch.randint(0, 2, (5,)))


def argmax_of_one_logit():
    model, optimizer, x, _ = regression()
    y = torch.randint(0, 2, (16,)).float()
    for _ in range(2):
        optimizer.zero_grad()
        logits = model(x)
        F.binary_cross_entropy_with_logits(logits, y.unsqueeze(1)).backward()
        optimizer.step()
        predicted = logits.argmax(dim=1)  # finds: argmax-of-one
        print((predicted == y).float().mean().item())


def argmax_of_one_logit_fixed():
    model, optimizer, x, _ = regression()
    y = torch.randint(0, 2, (16,)).float()
    for _ in range(2):
        optimizer.zero_grad()
        logits = model(x)
        F.binary_cross_entropy_with_logits(logits, y.unsqueeze(1)).backward()
        optimizer.step()
        predicted = (logits > 0).squeeze(1).float()
        print((predicted == y).float().mean().item())


def equals_of_sigmoid():
    model, optimizer, x, _ = regression()
    y = torch.randint(0, 2, (16, 1)).float()
    optimizer.zero_grad()
    p = torch.sigmoid(model(x))
    F.binary_cross_entropy(p, y).backward()
    optimizer.step()
    print((p == y).float().mean().item())  # finds: equals-a-float


def equals_of_sigmoid_fixed():
    model, optimizer, x, _ = regression()
    y = torch.randint(0, 2, (16, 1)).float()
    optimizer.zero_grad()
    p = torch.sigmoid(model(x))
    F.binary_cross_entropy(p, y).backward()
    optimizer.step()
    print((p.round() == y).float().mean().item())


def accuracy_of_each_with_each():
    model = nn.Linear(4, 3)
    x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
    with torch.no_grad():
        predicted = model(x).argmax(dim=1, keepdim=True)
        print((predicted == y).sum().item() / 16)  # finds: broadcast


def accuracy_of_each_with_each_fixed():
    model = nn.Linear(4, 3)
    x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
    with torch.no_grad():
        predicted = model(x).argmax(dim=1, keepdim=True)
        print(predicted.eq(y.view_as(predicted)).sum().item() / 16)


class Encoder(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(8, 2)

    def forward(self, x):
        h = self.encoder(x)
        return self.head(h.mean(dim=1))  # finds: sequence-axis  [encoder]


def attention_over_the_batch():  # [encoder]
    train_classifier(Encoder(False), torch.randn(5, 9, 8), torch.randint(0, 2, (5,)))


def attention_over_the_sequence_fixed():
    train_classifier(Encoder(True), torch.randn(5, 9, 8), torch.randint(0, 2, (5,)))


def matrix_turned_by_view():
    x, w = torch.randn(5, 4), nn.Parameter(torch.randn(3, 4))
    table = w * 2
    y = x @ table.view(4, 3)  # finds: view-for-transpose
    y.sum().backward()


def matrix_turned_fixed():
    x, w = torch.randn(5, 4), nn.Parameter(torch.randn(3, 4))
    table = w * 2
    y = x @ table.t()
    y.sum().backward()


def numbers_in_rows_lookalike():
    whole = torch.randn(2, 4) * 2
    print(whole.view(4, 2).abs().max().item())
