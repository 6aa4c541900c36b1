"""Bugs of a fourth set, of ordinary training scripts; it was written before anyone looked at a detector for them."""

import math

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

STEPS = 5


def train(parameters, loss_of, steps=STEPS):
    optimizer = optim.Adam(list(parameters), lr=0.01)
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mlp(i, o, h=16):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, o))


# reduced-too-early


def weights_after_the_mean():
    model, x, y, weight = mlp(4, 1), torch.randn(8, 4), torch.rand(8, 1), torch.rand(8)
    criterion = nn.BCEWithLogitsLoss()
    train(
        model.parameters(),
        lambda: (
            criterion(model(x), y)  # finds: reduced-too-early
            * weight
        ).mean(),
    )


def weights_before_the_mean_fixed():
    model, x, y, weight = mlp(4, 1), torch.randn(8, 4), torch.rand(8, 1), torch.rand(8, 1)
    criterion = nn.BCEWithLogitsLoss(reduction="none")
    train(model.parameters(), lambda: (criterion(model(x), y) * weight).mean())


def log_determinant_of_the_batch():
    scale, x = mlp(2, 2), torch.randn(8, 2)

    def loss():
        s = scale(x)
        z = x * s.exp()
        log_scale = s.sum()  # finds: reduced-too-early
        return -(-0.5 * (z * z).sum(1) + log_scale).mean()

    train(scale.parameters(), loss)


def log_determinant_of_each_fixed():
    scale, x = mlp(2, 2), torch.randn(8, 2)

    def loss():
        s = scale(x)
        z = x * s.exp()
        return -(-0.5 * (z * z).sum(1) + s.sum(1)).mean()

    train(scale.parameters(), loss)


def penalty_added_to_each_sample_lookalike():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)

    def loss():
        each = (model(x) - y).pow(2).squeeze(1)
        penalty = sum(p.pow(2).sum() for p in model.parameters())
        return (each + 0.01 * penalty + 0.1 * model(x).mean()).mean()

    train(model.parameters(), loss)


def learned_scale_lookalike():
    model, log_scale = mlp(4, 1), nn.Parameter(torch.zeros(()))
    x, y, weight = torch.randn(8, 4), torch.randn(8, 1), torch.rand(8, 1)
    train(
        [*model.parameters(), log_scale],
        lambda: ((model(x) - y).pow(2) * (log_scale.exp() * weight)).mean() - log_scale,
    )


def focal_of_the_mean():
    model, x, y = mlp(4, 3), torch.randn(8, 4), torch.randint(0, 3, (8,))

    def loss():
        ce = F.cross_entropy(model(x), y)  # finds: reduced-too-early
        pt = torch.exp(-ce)
        return ((1 - pt) ** 2 * ce).mean()

    train(model.parameters(), loss)


def focal_of_each_fixed():
    model, x, y = mlp(4, 3), torch.randn(8, 4), torch.randint(0, 3, (8,))

    def loss():
        ce = F.cross_entropy(model(x), y, reduction="none")
        pt = torch.exp(-ce)
        return ((1 - pt) ** 2 * ce).mean()

    train(model.parameters(), loss)


# squared-mean


def mean_then_square():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    train(model.parameters(), lambda: (model(x) - y).mean() ** 2)  # finds: squared-mean


def mean_of_errors():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    train(model.parameters(), lambda: (model(x) - y).mean())  # finds: squared-mean


def square_then_mean_fixed():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    train(model.parameters(), lambda: ((model(x) - y) ** 2).mean())


def critic_lookalike():
    critic, x, fake = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 4)
    train(critic.parameters(), lambda: (critic(fake) - critic(x)).mean())


def moments_lookalike():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    train(model.parameters(), lambda: (model(x).mean() - y.mean()) ** 2 + model(x).pow(2).mean())


# padding-in-loss


def sentences(padding_value):
    tokens = [torch.randint(1, 9, (n,)) for n in (3, 7, 5)]
    tags = [each % 4 + 1 for each in tokens]
    return pad_sequence(tokens, batch_first=True), pad_sequence(tags, batch_first=True, padding_value=padding_value)


def padding_is_learned():
    model, (x, y) = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 5)), sentences(0)
    train(
        model.parameters(),
        lambda: F.cross_entropy(model(x).reshape(-1, 5), y.reshape(-1)),  # finds: padding-in-loss
    )


def padding_is_ignored_fixed():
    model, (x, y) = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 5)), sentences(0)
    train(
        model.parameters(),
        lambda: F.cross_entropy(model(x).reshape(-1, 5), y.reshape(-1), ignore_index=0),
    )


def padding_with_minus_100_fixed():
    model, (x, y) = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 5)), sentences(-100)
    train(model.parameters(), lambda: F.cross_entropy(model(x).transpose(1, 2), y))


def padding_masked_lookalike():
    model, (x, y) = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 5)), sentences(0)

    def loss():
        each = F.cross_entropy(model(x).transpose(1, 2), y, reduction="none")
        return each[y > 0].mean() + F.cross_entropy(model(x)[y > 0], y[y > 0])

    train(model.parameters(), loss)


# mean-over-padding


def pooled(mean):
    model, head = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 8)), nn.Linear(8, 2)
    x, _ = sentences(0)
    mask = (x != 0).float()
    train(
        [*model.parameters(), *head.parameters()],
        lambda: F.cross_entropy(head(mean(model(x), mask)), torch.tensor([0, 1, 0])),
    )


def mean_over_all_steps():
    pooled(lambda h, mask: (h * mask.unsqueeze(-1)).mean(1))  # finds: mean-over-padding


def mean_over_own_steps_fixed():
    pooled(lambda h, mask: (h * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True))


def dropped_words_lookalike():
    pooled(lambda h, mask: (h * (torch.rand(3, 7, 1) > 0.1).float()).mean(1))


# argmax-of-all


def argmax_of_the_whole():
    with torch.no_grad():
        logits, labels = mlp(4, 6)(torch.randn(6, 4)), torch.arange(6)
        return (torch.argmax(logits) == labels).float().mean()  # finds: argmax-of-all


def argmax_of_each_fixed():
    with torch.no_grad():
        logits, labels = mlp(4, 6)(torch.randn(6, 4)), torch.arange(6)
        return (torch.argmax(logits, 1) == labels).float().mean()


def argmax_of_one_sample_lookalike():
    with torch.no_grad():
        logits, label = mlp(4, 6)(torch.randn(1, 4)), torch.tensor([3])
        return logits.argmax() == label, logits.argmax() == torch.arange(6)


# optimizer-made-again


def adam_in_the_loop():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    for _ in range(STEPS):
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        F.mse_loss(model(x), y).backward()
        optimizer.step()  # finds: optimizer-made-again
        optimizer.zero_grad()


def adam_before_the_loop_fixed():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def sgd_in_the_loop_lookalike():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    for _ in range(STEPS):
        optimizer = optim.SGD(model.parameters(), lr=0.01)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def adam_for_each_task_lookalike():
    model = mlp(4, 1)
    for _ in range(STEPS):
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        train(model.parameters(), lambda x=x, y=y: F.mse_loss(model(x), y), steps=3)


# same-layer-again


class Deep(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers, self.head = layers, nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def one_layer_three_times():
    model = Deep(nn.ModuleList([nn.Linear(8, 8)] * 3))  # finds: same-layer-again
    x, y = torch.randn(8, 8), torch.randn(8, 1)
    train(model.parameters(), lambda: F.mse_loss(model(x), y))


def three_layers_fixed():
    model = Deep(nn.ModuleList([nn.Linear(8, 8) for _ in range(3)]))
    x, y = torch.randn(8, 8), torch.randn(8, 1)
    train(model.parameters(), lambda: F.mse_loss(model(x), y))


def shared_layer_lookalike():
    layer = nn.Linear(8, 8)
    model = Deep(nn.ModuleList([layer] * 3))
    x, y = torch.randn(8, 8), torch.randn(8, 1)
    train(model.parameters(), lambda: F.mse_loss(model(x), y))


# not-called and not-frozen


def eval_without_a_call():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    train(model.parameters(), lambda: F.mse_loss(model(x), y))
    model.eval  # finds: not-called
    with torch.no_grad():
        return F.mse_loss(model(x), y)


def eval_with_a_call_fixed():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)
    train(model.parameters(), lambda: F.mse_loss(model(x), y))
    model.eval()
    switch = model.eval
    switch()
    with torch.no_grad():
        return F.mse_loss(model(x), y)


def frozen(freeze):
    backbone, head = mlp(4, 8), nn.Linear(8, 1)
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    freeze(backbone)
    train(
        [p for p in (*backbone.parameters(), *head.parameters()) if p.requires_grad],
        lambda: F.mse_loss(head(backbone(x)), y),
    )


def freezes_under_a_wrong_name():
    def freeze(backbone):
        for p in backbone.parameters():
            p.require_grad = False  # finds: not-frozen

    frozen(freeze)


def freezes_a_module():
    def freeze(encoder):
        encoder.requires_grad = False  # finds: not-frozen
        encoder.train()

    frozen(freeze)


def freezes_fixed():
    def freeze(body):
        for p in body.parameters():
            p.requires_grad = False

    frozen(freeze)


def freezes_parameters_named_like_a_module_lookalike():
    def freeze(model):
        for model in model.parameters():
            model.requires_grad = False

    frozen(freeze)


def freezes_a_tensor_lookalike():
    x = torch.randn(3, requires_grad=True)
    x.requires_grad = False
    return x.sum()


# unrelated-noise and uniform-noise


def fresh_noise_as_target():
    model, x = mlp(2, 2), torch.randn(8, 2)

    def loss():
        noisy = 0.8 * x + 0.6 * torch.randn_like(x)
        return F.mse_loss(model(noisy), torch.randn_like(x))  # finds: unrelated-noise

    train(model.parameters(), loss)


def same_noise_as_target_fixed():
    model, x = mlp(2, 2), torch.randn(8, 2)

    def loss():
        noise = torch.randn_like(x)
        return F.mse_loss(model(0.8 * x + 0.6 * noise), noise)

    train(model.parameters(), loss)


def random_targets_lookalike():
    model = mlp(2, 2)
    train(model.parameters(), lambda: F.mse_loss(model(torch.randn(8, 2)), torch.randn(8, 2)))


def variational(noise):
    encoder, decoder, x = mlp(6, 8), mlp(4, 6), torch.randn(8, 6)

    def loss():
        mu, logvar = encoder(x).chunk(2, 1)
        std = torch.exp(0.5 * logvar)
        z = mu + noise(std)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return F.mse_loss(decoder(z), x) + kl

    train([*encoder.parameters(), *decoder.parameters()], loss)


def uniform_samples():
    variational(lambda std: torch.rand_like(std) * std)  # finds: uniform-noise


def gaussian_samples_fixed():
    variational(lambda std: torch.randn_like(std) * std)


def uniform_dither_lookalike():
    variational(lambda std: torch.randn_like(std) * std + torch.rand_like(std) * 0.01)


# shuffled-apart


def two_permutations():
    model, x, y = mlp(4, 3), torch.randn(12, 4), torch.randint(0, 3, (12,))

    def loss():
        inputs = x[torch.randperm(12)]
        labels = y[torch.randperm(12)]  # finds: shuffled-apart
        return F.cross_entropy(model(inputs[:6]), labels[:6])

    train(model.parameters(), loss)


def one_permutation_fixed():
    model, x, y = mlp(4, 3), torch.randn(12, 4), torch.randint(0, 3, (12,))

    def loss():
        order = torch.randperm(12)
        return F.cross_entropy(model(x[order][:6]), y[order][:6])

    train(model.parameters(), loss)


def mixup_lookalike():
    model, x, y = mlp(4, 3), torch.randn(12, 4), torch.randint(0, 3, (12,))

    def loss():
        order = torch.randperm(12)
        out = model(0.7 * x + 0.3 * x[order])
        return 0.7 * F.cross_entropy(out, y) + 0.3 * F.cross_entropy(out, y[order])

    train(model.parameters(), loss)


def pairs_of_strangers_lookalike():
    model, x, y = mlp(8, 1), torch.randn(12, 4), torch.randn(12, 4)

    def loss():
        joint = model(torch.cat([x[torch.randperm(12)], y[torch.randperm(12)]], 1))
        return F.binary_cross_entropy_with_logits(joint, torch.zeros(12, 1))

    train(model.parameters(), loss)


# sees-the-answer


class Attends(nn.Module):
    def __init__(self, is_causal, by_hand=False):
        super().__init__()
        self.embedding, self.qkv, self.head = nn.Embedding(9, 8), nn.Linear(8, 24), nn.Linear(8, 9)
        self.is_causal, self.by_hand = is_causal, by_hand

    def forward(self, tokens):
        q, k, v = self.qkv(self.embedding(tokens)).chunk(3, -1)
        if not self.by_hand:
            return self.head(
                F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)  # finds: sees-the-answer [bare]
            )
        scores = q @ k.transpose(1, 2) / math.sqrt(8)
        if self.is_causal:
            scores = scores + torch.full((6, 6), -1e9).triu(1)
        return self.head(scores.softmax(-1) @ v)  # finds: sees-the-answer [hand]


def next_token(model):
    tokens = torch.randint(0, 9, (4, 7))
    train(
        model.parameters(),
        lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()),
    )


def no_causal_mask():  # [bare]
    next_token(Attends(False))


def no_causal_mask_by_hand():  # [hand]
    next_token(Attends(False, by_hand=True))


def causal_fixed():
    next_token(Attends(True))
    next_token(Attends(True, by_hand=True))


def slices_of_a_long_text(shift):
    text, model = torch.randint(0, 9, (50,)), Attends(True)

    def loss():
        starts = torch.randint(0, 40, (4,))
        x = torch.stack([text[i : i + 6] for i in starts])
        y = torch.stack([text[i + shift : i + shift + 6] for i in starts])
        logits = model(x)
        return F.cross_entropy(logits.view(-1, 9), y.view(-1))  # finds: sees-the-answer [slices]

    train(model.parameters(), loss)


def targets_without_a_shift():  # [slices]
    slices_of_a_long_text(0)


def targets_with_a_shift_fixed():
    slices_of_a_long_text(1)


def tags_lookalike():
    tokens, model = torch.randint(0, 9, (4, 6)), Attends(False)
    tags = (tokens + 1) % 9
    train(model.parameters(), lambda: F.cross_entropy(model(tokens).flatten(0, 1), tags.flatten()))


def rebuilt_from_a_summary_lookalike():
    tokens = torch.randint(0, 9, (4, 7))
    embedding, encoder, decoder, head = (
        nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=True), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)
    )  # fmt: skip
    modules = nn.ModuleList([embedding, encoder, decoder, head])

    def loss():
        _, h = encoder(embedding(tokens[:, :6]))
        out, _ = decoder(torch.zeros(4, 6, 8), h)
        return F.cross_entropy(head(out).flatten(0, 1), tokens[:, :6].flatten())

    train(modules.parameters(), loss)


# wraps-around


def darker_than_black():
    image, model, y = torch.randint(0, 256, (8, 4), dtype=torch.uint8), mlp(4, 1), torch.randn(8, 1)
    x = (image - 128).float() / 128  # finds: wraps-around
    train(model.parameters(), lambda: F.mse_loss(model(x), y))


def difference_of_frames():
    frames, model, y = torch.randint(0, 256, (9, 4), dtype=torch.uint8), mlp(4, 1), torch.randn(8, 1)
    x = (frames[1:] - frames[:-1]) / 255  # finds: wraps-around
    train(model.parameters(), lambda: F.mse_loss(model(x), y))


def converted_first_fixed():
    image, model, y = torch.randint(0, 256, (8, 4), dtype=torch.uint8), mlp(4, 1), torch.randn(8, 1)
    x = (image.float() - 128) / 128
    train(model.parameters(), lambda: F.mse_loss(model(x), y))


def negative_of_an_image_lookalike():
    image, model, y = torch.randint(0, 256, (8, 4), dtype=torch.uint8), mlp(4, 1), torch.randn(8, 1)
    x = (255 - image).float() / 255
    train(model.parameters(), lambda: F.mse_loss(model(x), y))


def masked_image_lookalike():
    image = torch.randint(0, 256, (8, 4), dtype=torch.uint8)
    mask = (image > 100).to(torch.uint8)
    model, y = mlp(4, 1), torch.randn(8, 1)
    x = (image * mask).float() / 255
    train(model.parameters(), lambda: F.mse_loss(model(x), y))


# more of what was there before


def penalty_of_data():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)

    def loss():
        penalty = sum(
            p.data.abs().sum()  # finds: term-without-gradient
            for p in model.parameters()
        )
        return F.mse_loss(model(x), y) + 0.01 * penalty

    train(model.parameters(), loss)


def penalty_as_a_number():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)

    def loss():
        out = model(x)
        return F.mse_loss(out, y) + 0.1 * out.abs().mean().item()  # finds: term-without-gradient

    train(model.parameters(), loss)


def penalty_fixed():
    model, x, y = mlp(4, 1), torch.randn(8, 4), torch.randn(8, 1)

    def loss():
        out = model(x)
        penalty = sum(p.abs().sum() for p in model.parameters())
        return F.mse_loss(out, y) / (1 + out.abs().max().item()) + 0.01 * penalty

    train(model.parameters(), loss)


def similarity_of_steps():
    a, b, x = mlp(4, 6), mlp(4, 6), torch.randn(8, 5, 4)
    train(
        [*a.parameters(), *b.parameters()],
        lambda: 1 - F.cosine_similarity(a(x), b(x)).mean(),  # finds: normalised-axis
    )


def similarity_of_features_fixed():
    a, b, x = mlp(4, 6), mlp(4, 6), torch.randn(8, 5, 4)
    train(
        [*a.parameters(), *b.parameters()],
        lambda: 1 - F.cosine_similarity(a(x), b(x), dim=-1).mean(),
    )


def similarity_of_channels_lookalike():
    a, b, x = nn.Conv1d(4, 6, 1), nn.Conv1d(4, 6, 1), torch.randn(8, 4, 5)
    train([*a.parameters(), *b.parameters()], lambda: 1 - F.cosine_similarity(a(x), b(x)).mean())


def head_of_another_size_after_the_optimizer():
    model, x, y = mlp(4, 6), torch.randn(8, 4), torch.randint(0, 3, (8,))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    model[2] = nn.Linear(16, 3)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()  # finds: stale-optimizer


def advantage_with_its_square():
    policy, value, x = mlp(4, 3), mlp(4, 1), torch.randn(8, 4)
    returns, action = torch.randn(8), torch.randint(0, 3, (8, 1))

    def loss():
        chosen = policy(x).log_softmax(1).gather(1, action).squeeze(1)
        advantage = returns - value(x).squeeze(1)  # finds: advantage-with-gradient
        return -(chosen * advantage).mean() + 0.5 * advantage.pow(2).mean()

    train([*policy.parameters(), *value.parameters()], loss)


def advantage_with_its_square_fixed():
    policy, value, x = mlp(4, 3), mlp(4, 1), torch.randn(8, 4)
    returns, action = torch.randn(8), torch.randint(0, 3, (8, 1))

    def loss():
        chosen = policy(x).log_softmax(1).gather(1, action).squeeze(1)
        advantage = returns - value(x).squeeze(1)
        return -(chosen * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean()

    train([*policy.parameters(), *value.parameters()], loss)


def generator_detached_in_its_own_step():
    _adversarial(lambda fake: fake.detach())  # finds: no-gradient


def generator_detached_in_the_other_step_fixed():
    _adversarial(lambda fake: fake)


def _adversarial(own):
    generator, critic, offset = mlp(4, 2), mlp(2, 1), nn.Parameter(torch.zeros(()))
    of_generator = optim.Adam([*generator.parameters(), offset])
    of_critic = optim.Adam(critic.parameters())
    for _ in range(STEPS):
        fake = generator(torch.randn(8, 4)) + offset
        loss = F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(torch.randn(8, 2))).mean()
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        loss = F.softplus(-critic(own(fake))).mean() + 0.1 * offset**2
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()


# gradient-unused


def _adapted(query):
    model = nn.Linear(3, 1)

    def loss():
        total = torch.zeros(())
        for _ in range(2):
            x, y = torch.randn(6, 3), torch.randn(6, 1)
            parameters = dict(model.named_parameters())
            inner = F.mse_loss(model(x), y)
            weights = list(parameters.values())
            gradients = torch.autograd.grad(inner, weights, create_graph=True)  # finds: gradient-unused [unused]
            fast = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), gradients, strict=True)}
            total = total + F.mse_loss(query(model, fast, x), y)
        return total

    train(model.parameters(), loss)


def adapted_weights_unused():  # [unused]
    _adapted(lambda model, fast, x: model(x))


def adapted_weights_used_fixed():
    _adapted(lambda model, fast, x: torch.func.functional_call(model, fast, x))


def gradient_penalty_lookalike():
    critic, x = mlp(2, 1), torch.randn(8, 2, requires_grad=True)

    def loss():
        (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        return critic(x).mean() + (gradient.norm(dim=1) - 1).pow(2).mean()

    train(critic.parameters(), loss)


# weights-of-classes


def _sampled(weights_of):
    y = torch.randint(0, 3, (40,))
    x, model = torch.randn(40, 4), mlp(4, 3)
    weights = weights_of(1 / torch.bincount(y, minlength=3).clamp(min=1), y)
    sampler = WeightedRandomSampler(weights, 40)
    loader = DataLoader(TensorDataset(x, y), 8, sampler=sampler)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in loader:  # finds: weights-of-classes [classes]
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def sampler_with_weights_of_classes():  # [classes]
    _sampled(lambda weights, y: weights)


def sampler_with_weights_of_samples_fixed():
    _sampled(lambda weights, y: weights[y])
