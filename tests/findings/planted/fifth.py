"""Bugs of a fifth set: what public issues, pull requests and forum threads say was wrong."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn, optim


def train(parameters, loss_of, steps=3):
    optimizer = optim.Adam(list(parameters), lr=0.01)
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mlp(i, o, h=16):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, o))


# arguments-swapped


def target_first():
    net, x = mlp(6, 3), torch.randn(16, 6)
    y = F.one_hot(torch.randint(0, 3, (16,)), 3).float()
    train(net.parameters(), lambda: nn.CrossEntropyLoss()(y, net(x)))  # finds: arguments-swapped


def target_last_fixed():
    net, x = mlp(6, 3), torch.randn(16, 6)
    y = F.one_hot(torch.randint(0, 3, (16,)), 3).float()
    train(net.parameters(), lambda: nn.CrossEntropyLoss()(net(x), y))


def binary_target_first():
    net, x, y = mlp(6, 1), torch.randn(16, 6), torch.rand(16, 1)
    train(net.parameters(), lambda: F.binary_cross_entropy(y, net(x).sigmoid()))  # finds: arguments-swapped


def learned_teacher_lookalike():
    student, teacher, x = mlp(6, 3), mlp(6, 3), torch.randn(16, 6)
    parameters = [*student.parameters(), *teacher.parameters()]
    train(parameters, lambda: F.cross_entropy(student(x), teacher(x).softmax(1)))


# loss-twice


def two_directions(is_wrong):
    images, texts = mlp(8, 8), mlp(6, 8)
    x, t, y = torch.randn(10, 8), torch.randn(10, 6), torch.arange(10)

    def loss():
        logits = F.normalize(images(x), dim=-1) @ F.normalize(texts(t), dim=-1).T * 10
        of_images = F.cross_entropy(logits, y)
        other = logits if is_wrong else logits.T
        of_texts = F.cross_entropy(other, y)  # finds: loss-twice  [twice]
        return (of_images + of_texts) / 2

    train([*images.parameters(), *texts.parameters()], loss)


def one_direction_twice():  # [twice]
    two_directions(is_wrong=True)


def both_directions_fixed():
    two_directions(is_wrong=False)


def loss_again_for_the_log_lookalike():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))

    def loss():
        scores = net(x)
        print(F.cross_entropy(scores, y).item())
        return F.cross_entropy(scores, y)

    train(net.parameters(), loss)


def mixup_switched_off_lookalike():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))

    def loss():
        scores, share, first, second = net(x), 1.0, y, y
        return share * F.cross_entropy(scores, first) + (1 - share) * F.cross_entropy(scores, second)

    train(net.parameters(), loss)


# wrong-sign


def made_large():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))
    train(net.parameters(), lambda: -F.cross_entropy(net(x), y))  # finds: wrong-sign


def made_small_fixed():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))
    train(net.parameters(), lambda: F.cross_entropy(net(x), y))


def likelihood_made_small():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))

    def loss():
        log_p = F.log_softmax(net(x), dim=1)  # finds: wrong-sign
        return log_p[torch.arange(16), y].mean()

    train(net.parameters(), loss)


def likelihood_made_large_fixed():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))

    def loss():
        log_p = F.log_softmax(net(x), dim=1)
        return -log_p[torch.arange(16), y].mean()

    train(net.parameters(), loss)


def vae(kind):
    encoder, decoder, x = mlp(12, 8), mlp(4, 12), torch.rand(16, 12)

    def loss():
        mu, logvar = encoder(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()  # finds: activation-unused  [mean]
        decoded = decoder(mu if kind == "mean" else z)
        error = F.mse_loss(decoded, x, reduction="sum")
        if kind == "sign":
            kl = 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())  # finds: wrong-sign  [sign]
        else:
            kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return error + kl

    train([*encoder.parameters(), *decoder.parameters()], loss)


def divergence_without_minus():  # [sign]
    vae("sign")


def divergence_fixed():
    vae("right")


def adversary_lookalike():
    net, judge = mlp(6, 4), mlp(4, 2)
    x, y, group = torch.randn(16, 6), torch.randn(16, 4), torch.randint(0, 2, (16,))
    optimizers = [optim.Adam(each.parameters(), 0.01) for each in (net, judge)]
    for _ in range(3):
        optimizers[1].zero_grad()
        F.cross_entropy(judge(net(x).detach()), group).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        h = net(x)
        (F.mse_loss(h, y) - 0.1 * F.cross_entropy(judge(h), group)).backward()
        optimizers[0].step()


def attack_lookalike():
    net, x, y = mlp(6, 3).requires_grad_(False), torch.randn(16, 6), torch.randint(0, 3, (16,))
    delta = torch.zeros_like(x, requires_grad=True)
    train([delta], lambda: -F.cross_entropy(net(x + delta), y))


# similarity-of-itself


def pairs(is_masked):
    net, x = mlp(8, 8), torch.randn(12, 8)

    def loss():
        z = F.normalize(torch.cat([net(x), net(x + 0.1 * torch.randn_like(x))]), dim=1)
        logits = z @ z.T / 0.5
        if is_masked:
            logits = logits.masked_fill(torch.eye(24, dtype=torch.bool), -1e9)
        y = torch.cat([torch.arange(12, 24), torch.arange(12)])
        return F.cross_entropy(logits, y)  # finds: similarity-of-itself  [diagonal]

    train(net.parameters(), loss)


def diagonal_in_the_loss():  # [diagonal]
    pairs(is_masked=False)


def cosine_of_all_pairs():
    net, x, y = mlp(8, 8), torch.randn(12, 8), torch.arange(12).roll(6)

    def loss():
        z = net(x)
        similar = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2)
        return F.cross_entropy(similar / 0.1, y)  # finds: similarity-of-itself

    train(net.parameters(), loss)


def diagonal_masked_fixed():
    pairs(is_masked=True)


def graph_autoencoder_lookalike():
    net, x, edges = mlp(8, 4), torch.randn(12, 8), (torch.rand(12, 12) > 0.5).float()

    def loss():
        z = net(x)
        return F.binary_cross_entropy_with_logits(z @ z.T, edges)

    train(net.parameters(), loss)


def similarities_distilled_lookalike():
    student, teacher, x = mlp(8, 4), mlp(8, 4).requires_grad_(False), torch.randn(12, 8)

    def loss():
        own, wanted = student(x), teacher(x)
        return F.kl_div((own @ own.T).log_softmax(1), (wanted @ wanted.T).softmax(1), reduction="batchmean")

    train(student.parameters(), loss)


# activation-unused


class Branches(nn.Module):
    def __init__(self, is_wrong):
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 3, padding=1), nn.Linear(8, 3)
        self.relu, self.is_wrong = nn.ReLU(), is_wrong

    def forward(self, x):
        a = self.a(x)
        active = self.relu(a)  # finds: activation-unused  [branch]
        b = self.relu(self.b(x))
        both = torch.cat([a if self.is_wrong else active, b], 1)
        return self.head(both.mean((2, 3)))


def branches(is_wrong):
    net, x, y = Branches(is_wrong), torch.randn(8, 3, 8, 8), torch.randint(0, 3, (8,))
    train(net.parameters(), lambda: F.cross_entropy(net(x), y))


def branch_without_its_activation():  # [branch]
    branches(is_wrong=True)


def branch_with_its_activation_fixed():
    branches(is_wrong=False)


def sample_not_decoded():  # [mean]
    vae("mean")


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.body(x)
        features = F.relu(h)
        return self.head(h), features


def features_returned_lookalike():
    net, x, y = Features(), torch.randn(8, 6), torch.randint(0, 3, (8,))
    train(net.parameters(), lambda: F.cross_entropy(net(x)[0], y))


# added-to-itself


class Block(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.a, self.b, self.kind = nn.Linear(16, 16), nn.Linear(16, 16), kind

    def forward(self, x):
        residual = x
        x = self.b(F.relu(self.a(x)))
        if self.kind == "wrong":
            x += x  # finds: added-to-itself  [doubled]
        elif self.kind == "twice":
            x = x + x
        else:
            x += residual
        return F.relu(x)


def blocks(kind):
    net = nn.Sequential(nn.Linear(6, 16), Block(kind), nn.Linear(16, 3))
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    train(net.parameters(), lambda: F.cross_entropy(net(x), y))


def no_residual():  # [doubled]
    blocks("wrong")


def residual_fixed():
    blocks("right")


def doubled_on_purpose_lookalike():
    blocks("twice")


# skip-overwritten


class Skip(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.body = nn.Sequential(first, nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 1))

    def forward(self, x):
        return x + self.body(x)  # finds: skip-overwritten  [skip]


class SkipOfActive(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu, self.body = nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x = self.relu(x)
        return x + self.body(x)


class SkipUnderAnotherName(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu, self.body = nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        out = self.relu(x)
        out = self.body(out)
        return out + x  # finds: skip-overwritten  [name]


def skips(block):
    net = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), block, nn.Linear(8, 4)])
    x, y = torch.randn(8, 3, 8, 8), torch.randint(0, 4, (8,))
    train(net.parameters(), lambda: F.cross_entropy(net[2](net[1](net[0](x)).mean((2, 3))), y))


def skip_after_relu_in_place():  # [skip]
    skips(Skip(nn.ReLU(inplace=True)))


def skip_of_what_another_name_has_changed():  # [name]
    skips(SkipUnderAnotherName())


def skip_fixed():
    skips(Skip(nn.ReLU()))


def skip_of_what_is_active_lookalike():
    skips(SkipOfActive())


# attention-scale, sees-the-answer, softmax-axis


class Attention(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.qkv, self.out, self.kind = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20), kind

    def forward(self, tokens):
        q, k, v = self.qkv(self.embed(tokens)).chunk(3, -1)
        scores = q @ k.transpose(-2, -1)
        if self.kind == "scale":
            scores = scores * math.sqrt(16)  # finds: attention-scale  [scale]
        else:
            scores = scores / math.sqrt(16)
        n = tokens.shape[1]
        mask = torch.tril(torch.ones(n, n), diagonal=int(self.kind == "next"))
        weights = scores.masked_fill(mask == 0, -1e9).softmax(-1)  # finds: sees-the-answer  [next]
        return self.out(weights @ v)


def language(kind):
    net, tokens = Attention(kind), torch.randint(0, 20, (4, 11))
    train(
        net.parameters(),
        lambda: F.cross_entropy(net(tokens[:, :-1]).reshape(-1, 20), tokens[:, 1:].reshape(-1)),
    )


def scores_multiplied():  # [scale]
    language("scale")


def mask_lets_the_next_one_through():  # [next]
    language("next")


def scores_divided_fixed():
    language("right")


def learned_temperature_lookalike():
    q, k, temperature = nn.Linear(16, 16), nn.Linear(16, 16), 4.0
    x, y = torch.randn(4, 9, 16), torch.randn(4, 9, 16)

    def loss():
        scores = F.normalize(q(x), dim=-1) @ F.normalize(k(x), dim=-1).transpose(-2, -1)
        return F.mse_loss((scores * temperature).softmax(-1) @ x, y)

    train([*q.parameters(), *k.parameters()], loss)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(20, 16), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 20)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


def classes_in_the_last_axis():
    net, tokens = Reader(), torch.randint(0, 20, (4, 21))
    train(net.parameters(), lambda: F.cross_entropy(net(tokens[:, :-1]), tokens[:, 1:]))  # finds: softmax-axis


def classes_in_axis_one_fixed():
    net, tokens = Reader(), torch.randint(0, 20, (4, 21))
    train(net.parameters(), lambda: F.cross_entropy(net(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:]))


# normalised-twice


def pictures(times):
    net, y = nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), torch.randint(0, 2, (6,))
    x = torch.rand(6, 3, 8, 8)
    mean, std = torch.tensor([0.48, 0.45, 0.40]).view(1, 3, 1, 1), torch.tensor([0.23, 0.22, 0.22]).view(1, 3, 1, 1)

    def loss():
        normal = x
        for _ in range(times):
            normal = (normal - mean) / std  # finds: normalised-twice  [normal]
        return F.cross_entropy(net(normal), y)

    train(net.parameters(), loss)


def normalised_in_data_set_and_model():  # [normal]
    pictures(2)


def normalised_once_fixed():
    pictures(1)


def bytes_divided_twice():
    net, y = mlp(4, 2), torch.randint(0, 2, (6,))
    x = torch.randint(0, 256, (6, 4)) / 255
    x = x / 255  # finds: normalised-twice
    train(net.parameters(), lambda: F.cross_entropy(net(x), y))


def halved_twice_lookalike():
    net, x, y = mlp(4, 2), torch.rand(6, 4), torch.randint(0, 2, (6,))
    train(net.parameters(), lambda: F.cross_entropy(net(x / 2 / 2), y))


# noise-level


def diffusion(mix):
    net, x = mlp(5, 4), torch.randn(8, 4)
    signal = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)

    def loss():
        t, noise = torch.randint(0, 100, (8,)), torch.randn(8, 4)
        noisy = mix(signal[t, None], x, noise)
        return F.mse_loss(net(torch.cat([noisy, t[:, None] / 100], 1)), noise)

    train(net.parameters(), loss)


def variance_for_deviation():
    diffusion(
        lambda a, x, noise: a.sqrt() * x + (1 - a) * noise,  # finds: noise-level
    )


def deviation_fixed():
    diffusion(lambda a, x, noise: a.sqrt() * x + (1 - a).sqrt() * noise)


def straight_path_lookalike():
    diffusion(lambda a, x, noise: a * x + (1 - a) * noise)


# seeded-again


def seed_in_the_loop():
    net, target = mlp(4, 8), torch.randn(16, 8)
    optimizer = optim.Adam(net.parameters())
    for _ in range(3):
        torch.manual_seed(0)  # finds: seeded-again
        loss = F.mse_loss(net(torch.randn(16, 4)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def seed_before_the_loop_fixed():
    torch.manual_seed(0)
    net, target = mlp(4, 8), torch.randn(16, 8)
    optimizer = optim.Adam(net.parameters())
    for _ in range(3):
        loss = F.mse_loss(net(torch.randn(16, 4)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def seed_that_changes_lookalike():
    net, target = mlp(4, 8), torch.randn(16, 8)
    optimizer = optim.Adam(net.parameters())
    for step in range(3):
        torch.manual_seed(step)
        optimizer.zero_grad()
        F.mse_loss(net(torch.randn(16, 4)), target).backward()
        optimizer.step()


def seed_for_each_run_lookalike():
    for lr in (0.1, 0.01):
        torch.manual_seed(0)
        net, x, y = mlp(4, 8), torch.randn(16, 4), torch.randn(16, 8)
        optimizer = optim.SGD(net.parameters(), lr=lr)
        for _ in range(2):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()


# term-without-gradient


def gan(is_wrong):
    g, d, real = mlp(4, 8), mlp(8, 1), torch.randn(16, 8)
    optimizers = [optim.Adam(each.parameters(), 0.001) for each in (g, d)]
    bce = nn.BCEWithLogitsLoss()
    for _ in range(3):
        fake = g(torch.randn(16, 4))
        optimizers[1].zero_grad()
        (bce(d(real), torch.ones(16, 1)) + bce(d(fake.detach()), torch.zeros(16, 1))).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        shown = fake.detach() if is_wrong else fake
        adversarial = bce(d(shown), torch.ones(16, 1))  # finds: term-without-gradient  [generator]
        (adversarial + F.l1_loss(fake.mean(0), real.mean(0))).backward()
        optimizers[0].step()


def generator_sees_a_detached_fake():  # [generator]
    gan(is_wrong=True)


def generator_sees_its_fake_fixed():
    gan(is_wrong=False)


def one_backward_for_two_optimizers_lookalike():
    actor, critic, x, y = mlp(4, 2), mlp(4, 1), torch.randn(16, 4), torch.randn(16, 1)
    optimizers = [optim.Adam(each.parameters(), 0.001) for each in (actor, critic)]
    for _ in range(3):
        (actor(x).pow(2).mean() + F.mse_loss(critic(x), y)).backward()
        for each in optimizers:
            each.step()
            each.zero_grad()


def gradient_penalty(is_graph_kept, norm):
    d, real, fake = mlp(8, 1), torch.randn(16, 8), torch.randn(16, 8)

    def loss():
        a = torch.rand(16, 1)
        mixed = (a * real + (1 - a) * fake).requires_grad_()
        gradient = torch.autograd.grad(d(mixed).sum(), mixed, create_graph=is_graph_kept, retain_graph=True)[0]
        penalty = ((norm(gradient) - 1) ** 2).mean()  # finds: term-without-gradient  [penalty]
        return d(fake).mean() - d(real).mean() + 10 * penalty

    train(d.parameters(), loss)


def penalty_without_graph():  # [penalty]
    gradient_penalty(is_graph_kept=False, norm=lambda gradient: gradient.norm(2, dim=1))


def penalty_with_graph_fixed():
    gradient_penalty(is_graph_kept=True, norm=lambda gradient: gradient.norm(2, dim=1))


# reduced-too-early


def norm_of_all_gradients():
    gradient_penalty(
        is_graph_kept=True,
        norm=lambda gradient: gradient.norm(),  # finds: reduced-too-early
    )


# broadcast, mask-added, copied-onto-itself, not-frozen, argmax-of-all


def matting(keeps):
    net, image, target = nn.Conv2d(3, 7, 3, padding=1), torch.rand(4, 3, 8, 8), torch.rand(4, 1, 8, 8)

    def loss():
        alpha, front, back = net(image).split([1, 3, 3], 1)
        share = torch.sum((image - back) * (front - back), 1, keepdim=keeps)
        alpha = alpha * 0.1 + share  # finds: broadcast  [matting]
        return F.l1_loss(alpha.mean(1, keepdim=True), target)

    train(net.parameters(), loss)


def channel_sum_without_keepdim():  # [matting]
    matting(keeps=False)


def channel_sum_with_keepdim_fixed():
    matting(keeps=True)


class Bag(nn.Module):
    def __init__(self, is_wrong):
        super().__init__()
        self.score, self.head, self.is_wrong = nn.Linear(8, 1), nn.Linear(8, 2), is_wrong

    def forward(self, bag, mask):
        scores = self.score(bag).squeeze(-1)
        if self.is_wrong:
            scores = scores * mask  # finds: mask-added  [bag]
        else:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        return self.head((scores.softmax(dim=1).unsqueeze(-1) * bag).sum(1))


def bags(is_wrong):
    net, bag, y = Bag(is_wrong), torch.randn(6, 9, 8), torch.randint(0, 2, (6,))
    mask = (torch.arange(9)[None] < torch.randint(3, 10, (6, 1))).float()
    train(net.parameters(), lambda: F.cross_entropy(net(bag, mask), y))


def scores_times_mask():  # [bag]
    bags(is_wrong=True)


def scores_filled_fixed():
    bags(is_wrong=False)


def target_network(is_wrong):
    q = mlp(4, 2)
    target = copy.deepcopy(q)
    s, r = torch.randn(16, 4), torch.randn(16)
    optimizer = optim.Adam(q.parameters(), 0.001)
    for _ in range(3):
        with torch.no_grad():
            y = r + 0.99 * target(s).max(1)[0]
        loss = F.smooth_l1_loss(q(s)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        online = target if is_wrong else q
        for t, p in zip(target.parameters(), online.parameters(), strict=True):
            t.data.copy_(0.01 * p.data + 0.99 * t.data)  # finds: copied-onto-itself  [target]


def target_follows_itself():  # [target]
    target_network(is_wrong=True)


def target_follows_the_online_network_fixed():
    target_network(is_wrong=False)


def first_layer_not_frozen():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))
    net[0].requires_grad = False  # finds: not-frozen
    train(net.parameters(), lambda: F.cross_entropy(net(x), y))


def first_layer_frozen_fixed():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))
    net[0].requires_grad_(False)
    train(net[2].parameters(), lambda: F.cross_entropy(net(x), y))


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        pe = torch.arange(64.0).view(16, 4) / 64
        pe.require_grad = False
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.shape[1]]


def misspelled_on_a_table_lookalike():
    positions, head, x, y = Positions(), nn.Linear(4, 2), torch.randn(8, 5, 4), torch.randint(0, 2, (8,))
    train(head.parameters(), lambda: F.cross_entropy(head(positions(x).mean(1)), y))


def evaluated(axis):
    net, x, y = mlp(6, 8), torch.randn(8, 6), torch.randint(0, 8, (8,))
    train(net.parameters(), lambda: F.cross_entropy(net(x), y))
    with torch.no_grad():
        predicted = net(x).argmax(axis)  # finds: argmax-of-all  [sample]
        print((predicted == y).float().mean())


def best_sample_for_each_class():  # [sample]
    evaluated(0)


def best_class_for_each_sample_fixed():
    evaluated(1)


# view-for-transpose


def relative(shift):
    net, x, y = nn.Linear(8, 8), torch.randn(3, 5, 8), torch.randn(3)
    table = nn.Parameter(torch.randn(9, 8))

    def loss():
        scores = net(x) @ table.T
        return F.mse_loss(shift(scores).mean((1, 2)), y)

    train([*net.parameters(), table], loss)


def shifted_by_a_column_of_zeros_lookalike():
    def shift(scores):
        b, t, n = scores.shape
        padded = torch.cat([scores.new_zeros(b, t, 1), scores], 2)
        return padded.view(b, n + 1, t)[:, 1:].view(b, t, n)

    relative(shift)


def shifted_by_padding_lookalike():
    def shift(scores):
        b, t, n = scores.shape
        padded = F.pad(scores, (0, 0, 0, 1))
        return padded.view(b, n, t + 1)[:, :, :t].reshape(b, n, t)

    relative(shift)


def shifted_without_padding_lookalike():
    def shift(scores):
        b, t, n = scores.shape
        turned = scores.reshape(b, n, t)[:, 1:]
        return turned.reshape(b, t, n - 1)

    relative(shift)


# loss-unused


def evaluation_with_a_loss_that_nobody_reads_lookalike():
    net, x, y = mlp(6, 3), torch.randn(16, 6), torch.randint(0, 3, (16,))
    optimizer = optim.Adam(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        scores = net(x)
        loss = F.cross_entropy(scores, y)  # noqa: F841
        print((scores.argmax(1) == y).float().mean().item())
