"""Losses that are given something else than they take, and softmax where it does nothing."""

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes=3, last=None):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, classes)
        self.last = last

    def forward(self, x):
        z = self.head(F.relu(self.body(x)))
        return z if self.last is None else self.last(z)


def train(model, criterion, y=None):
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.randn(8, 4)
    y = torch.randint(0, 3, (8,)) if y is None else y
    for _ in range(3):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()


def softmax_into_cross_entropy():
    criterion = nn.CrossEntropyLoss()
    train(Classifier(last=nn.Softmax(dim=1)), lambda p, y: criterion(p, y))  # finds: softmax-twice


def softmax_into_cross_entropy_fixed():
    criterion = nn.CrossEntropyLoss()
    train(Classifier(), lambda p, y: criterion(p, y))


def log_softmax_into_cross_entropy_lookalike():
    train(Classifier(last=nn.LogSoftmax(dim=1)), lambda p, y: F.cross_entropy(p, y))


def sigmoid_into_bce_with_logits():
    y = torch.randint(0, 2, (8, 1)).float()
    criterion = nn.BCEWithLogitsLoss()
    train(Classifier(1, torch.sigmoid), lambda p, y: criterion(p, y), y)  # finds: softmax-twice


def sigmoid_into_bce_fixed():
    y = torch.randint(0, 2, (8, 1)).float()
    criterion = nn.BCELoss()
    train(Classifier(1, torch.sigmoid), lambda p, y: criterion(p, y), y)


def softmax_reshaped_into_cross_entropy():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 10), nn.Softmax(dim=-1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(0, 10, (2, 7))
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 10), tokens[:, 1:].reshape(-1))  # finds: softmax-twice
    loss.backward()
    optimizer.step()


def softmax_reshaped_into_cross_entropy_fixed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(0, 10, (2, 7))
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 10), tokens[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()


def softmax_of_softmax():
    z = Classifier()(torch.randn(8, 4))
    p = z.softmax(-1)
    q = torch.softmax(p, dim=-1)  # finds: softmax-twice
    print(q.max().item())


def two_softmaxes_lookalike():
    scores = torch.randn(2, 5, 5)
    weights = scores.softmax(-1)
    mixed = weights @ torch.randn(2, 5, 4)
    print(mixed.softmax(-1).sum().item())


def probabilities_into_nll():
    train(Classifier(last=nn.Softmax(dim=1)), lambda p, y: F.nll_loss(p, y))  # finds: not-log-probabilities


def probabilities_into_nll_fixed():
    train(Classifier(last=nn.LogSoftmax(dim=1)), lambda p, y: F.nll_loss(p, y))


def logits_into_nll():
    criterion = nn.NLLLoss()
    train(Classifier(), lambda p, y: criterion(p, y))  # finds: not-log-probabilities


def log_of_softmax_into_nll_lookalike():
    train(Classifier(last=lambda z: z.softmax(1).log()), lambda p, y: F.nll_loss(p, y))


def probabilities_into_kl():
    teacher = Classifier()
    student = Classifier()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    with torch.no_grad():
        target = F.softmax(teacher(x), dim=1)
    p = F.softmax(student(x), dim=1)
    loss = F.kl_div(p, target, reduction="batchmean")  # finds: not-log-probabilities
    loss.backward()
    optimizer.step()


def probabilities_into_kl_fixed():
    teacher = Classifier()
    student = Classifier()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    with torch.no_grad():
        target = F.softmax(teacher(x), dim=1)
    p = F.log_softmax(student(x), dim=1)
    loss = F.kl_div(p, target, reduction="batchmean")
    loss.backward()
    optimizer.step()


def log_target_of_kl():
    teacher = Classifier()
    student = Classifier()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    with torch.no_grad():
        target = F.log_softmax(teacher(x), dim=1)
    p = F.log_softmax(student(x), dim=1)
    loss = F.kl_div(p, target, reduction="batchmean")  # finds: not-log-probabilities
    loss.backward()
    optimizer.step()


def log_target_of_kl_fixed():
    teacher = Classifier()
    student = Classifier()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    with torch.no_grad():
        target = F.log_softmax(teacher(x), dim=1)
    p = F.log_softmax(student(x), dim=1)
    loss = F.kl_div(p, target, reduction="batchmean", log_target=True)
    loss.backward()
    optimizer.step()


def softmax_of_one_output():
    y = torch.randint(0, 2, (8, 1)).float()
    last = lambda z: F.softmax(z, dim=1)  # finds: softmax-of-one
    train(Classifier(1, last), F.binary_cross_entropy, y)


def softmax_of_one_output_fixed():
    y = torch.randint(0, 2, (8, 1)).float()
    train(Classifier(1, torch.sigmoid), F.binary_cross_entropy, y)


def cross_entropy_of_one_output():
    y = torch.zeros(8, dtype=torch.long)
    train(Classifier(1), lambda p, y: F.cross_entropy(p, y), y)  # finds: softmax-of-one


def cross_entropy_of_two_outputs_fixed():
    y = torch.zeros(8, dtype=torch.long)
    train(Classifier(2), lambda p, y: F.cross_entropy(p, y), y)


def attention_over_a_bag_of_one_lookalike():
    scores = nn.Linear(4, 5)(torch.randn(1, 4))
    print(F.softmax(scores.T, dim=1).sum().item())


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v, self.dim = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), dim

    def forward(self, x, mask=None):
        scores = self.q(x) @ self.k(x).transpose(-2, -1) / 2
        weights = F.softmax(scores, dim=self.dim)  # finds: softmax-axis  [axis]
        return weights @ self.v(x)


def softmax_over_the_wrong_axis():  # [axis]
    model = Mixer(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 6, 4)).pow(2).mean().backward()
    optimizer.step()


def softmax_over_the_right_axis_fixed():
    model = Mixer(-1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 6, 4)).pow(2).mean().backward()
    optimizer.step()


def boolean_mask_added():
    q = nn.Linear(4, 4)
    x = torch.randn(2, 6, 4)
    scores = q(x) @ x.transpose(1, 2)
    mask = torch.tril(torch.ones(6, 6)).bool()
    weights = F.softmax(scores + mask, dim=-1)  # finds: mask-added
    (weights @ x).mean().backward()


def boolean_mask_filled_fixed():
    q = nn.Linear(4, 4)
    x = torch.randn(2, 6, 4)
    scores = q(x) @ x.transpose(1, 2)
    mask = torch.tril(torch.ones(6, 6)).bool()
    weights = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    (weights @ x).mean().backward()


def float_mask_of_minus_infinity_lookalike():
    q = nn.Linear(4, 4)
    x = torch.randn(2, 6, 4)
    scores = q(x) @ x.transpose(1, 2)
    mask = torch.full((6, 6), float("-inf")).triu(1)
    weights = F.softmax(scores + mask, dim=-1)
    (weights @ x).mean().backward()


def log_softmax_over_the_batch():
    last = lambda z: F.log_softmax(z, dim=0)  # finds: softmax-axis
    train(Classifier(last=last), lambda p, y: F.nll_loss(p, y))


def softmax_over_the_batch_for_the_answer():
    z = Classifier()(torch.randn(8, 4))
    p = torch.softmax(z, dim=0)  # finds: softmax-axis
    print(p.argmax(dim=1).tolist())


def softmax_over_classes_for_the_answer_fixed():
    z = Classifier()(torch.randn(8, 4))
    p = torch.softmax(z, dim=1)
    print(p.argmax(dim=1).tolist())


def logits_through_relu():
    train(Classifier(last=nn.ReLU()), lambda p, y: F.cross_entropy(p, y))  # finds: clipped-logits


class Einsum(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v, self.dim = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), dim

    def forward(self, x):
        scores = torch.einsum("bid,bjd->bij", self.q(x), self.k(x))
        weights = scores.softmax(dim=self.dim)  # finds: softmax-axis  [einsum]
        return torch.einsum("bij,bjd->bid", weights, self.v(x))


def einsum_over_the_wrong_axis():  # [einsum]
    Einsum(1)(torch.randn(2, 6, 4)).pow(2).mean().backward()


def einsum_over_the_right_axis_fixed():
    Einsum(-1)(torch.randn(2, 6, 4)).pow(2).mean().backward()


def mask_of_ones_and_zeros_multiplied():
    q = nn.Linear(4, 4)
    x = torch.randn(2, 6, 4)
    scores = q(x) @ x.transpose(1, 2)
    weights = F.softmax(scores * torch.tril(torch.ones(6, 6)), dim=-1)  # finds: mask-added
    (weights @ x).mean().backward()
