"""Things that are forgotten: a copy, a part of the loss, unscaling, the first write, a history that keeps its graphs."""

import torch
import torch.nn.functional as F
from torch import nn

X, Y = torch.randn(16, 4), torch.randn(16, 2)


def simple():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def output_compared_with_itself():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        F.mse_loss(output, output.detach()).backward()  # finds: compared-with-itself
        optimizer.step()


def output_compared_with_target_fixed():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        optimizer.step()


def weights_compared_with_themselves():
    model, optimizer = simple()
    before = model[0].weight
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        optimizer.step()
    print((model[0].weight - before).abs().max())  # finds: compared-with-itself


def weights_compared_with_a_copy_fixed():
    model, optimizer = simple()
    before = model[0].weight.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        optimizer.step()
    print((model[0].weight - before).abs().max())


def straight_through_lookalike():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        hard = (output > 0).float()
        F.mse_loss(hard + output - output.detach(), Y).backward()
        optimizer.step()


def part_of_the_loss_forgotten():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        smooth = F.l1_loss(output[1:], output[:-1])  # finds: loss-unused
        loss = F.mse_loss(output, Y)
        loss.backward()
        optimizer.step()
    return smooth.shape


def part_of_the_loss_fixed():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        smooth = F.l1_loss(output[1:], output[:-1])
        loss = F.mse_loss(output, Y) + smooth
        loss.backward()
        optimizer.step()


def part_of_the_loss_only_printed_lookalike():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        smooth = F.l1_loss(output[1:], output[:-1])
        loss = F.mse_loss(output, Y)
        loss.backward()
        optimizer.step()
        print(f"{smooth:.3f}")


def steps_without_unscaling():
    model, optimizer = simple()
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(X), Y)).backward()
        optimizer.step()  # finds: unscaled-step


def steps_by_the_scaler_fixed():
    model, optimizer = simple()
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(X), Y)).backward()
        scaler.step(optimizer)
        scaler.update()


def steps_after_unscaling_lookalike():
    model, optimizer = simple()
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(X), Y)).backward()
        scaler.unscale_(optimizer)
        optimizer.step()
        scaler.update()


def sum_in_empty_memory():
    model, optimizer = simple()
    total = torch.empty(2)  # finds: uninitialised
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        F.mse_loss(output, Y).backward()
        optimizer.step()
        total = total + output.detach().sum(0)


def sum_in_zeros_fixed():
    model, optimizer = simple()
    total = torch.zeros(2)
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        F.mse_loss(output, Y).backward()
        optimizer.step()
        total = total + output.detach().sum(0)


def filled_before_it_is_read_lookalike():
    kept = torch.empty(3, 4)
    for row in range(3):
        kept[row] = torch.randn(4)
    product = torch.empty(3, 4)
    torch.mul(kept, 2, out=product)
    print((kept + product).sum())


def losses_in_a_list():
    model, optimizer = simple()
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(model(X), Y)
        loss.backward()  # finds: loss-kept
        optimizer.step()
        losses.append(loss)


def losses_in_a_list_fixed():
    model, optimizer = simple()
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(model(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def losses_in_a_list_before_backward_lookalike():
    model, optimizer = simple()
    for _ in range(3):
        optimizer.zero_grad()
        losses = []
        for part in X.chunk(4):
            loss = (model(part) ** 2).mean()
            losses.append(loss)
        torch.stack(losses).mean().backward()
        optimizer.step()


class Drops(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.fc, self.head, self.drop = nn.Linear(4, 8), nn.Linear(8, 2), drop

    def forward(self, x):
        return self.head(self.drop(self, F.relu(self.fc(x))))


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        optimizer.step()


def training_as_probability():
    train(Drops(lambda self, h: F.dropout(h, self.training)))  # finds: drops-everything


def training_by_its_name_fixed():
    train(Drops(lambda self, h: F.dropout(h, 0.1, training=self.training)))


class Picture(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), norm, nn.Linear(4, 2)

    def forward(self, x):
        h = self.norm(self.conv(x))  # finds: batch-norm-of-one  [norm]
        return self.head(F.relu(h).mean((2, 3)))


def train_on_single_pictures(norm, size=1):
    model = Picture(norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model.train()
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(size, 1, 8, 8)), torch.randn(size, 2)).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            print(F.mse_loss(model(torch.randn(4, 1, 8, 8)), torch.randn(4, 2)).item())


def batches_of_one():  # [norm]
    train_on_single_pictures(nn.BatchNorm2d(4))


def batches_of_one_with_group_norm_fixed():
    train_on_single_pictures(nn.GroupNorm(2, 4))


def batches_of_two_lookalike():
    train_on_single_pictures(nn.BatchNorm2d(4), size=2)


def q_learning(target, steps=2):
    q, slow = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(q.parameters(), lr=0.1)
    for _ in range(steps):
        action, reward = torch.randint(0, 2, (16, 1)), torch.randn(16)
        predicted = q(X).gather(1, action).squeeze(1)
        optimizer.zero_grad()
        F.mse_loss(predicted, target(q, slow, reward)).backward()  # finds: bootstrapped-target  [moving]
        optimizer.step()


def target_with_gradient():  # [moving]
    q_learning(lambda q, slow, reward: reward + 0.9 * q(X).max(1)[0])


def target_without_gradient_fixed():
    q_learning(lambda q, slow, reward: reward + 0.9 * q(X).max(1)[0].detach())


def loss_term_never_added():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        loss = F.mse_loss(output, Y)
        penalty = 0.1 * (output**2).mean()  # finds: loss-unused
        loss.backward()
        optimizer.step()


def loss_term_added_fixed():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        loss = F.mse_loss(output, Y)
        penalty = 0.1 * (output**2).mean()
        (loss + penalty).backward()
        optimizer.step()


def term_kept_lookalike():
    model, optimizer = simple()
    penalties = []
    for _ in range(2):
        optimizer.zero_grad()
        output = model(X)
        penalty = 0.1 * (output**2).mean()
        penalties.append(penalty)
        F.mse_loss(output, Y).backward()
        optimizer.step()
    return penalties


def parameters_gone_through_twice():
    model, _ = simple()
    parameters = model.parameters()
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)  # finds: clipping
        optimizer.step()


def parameters_anew_fixed():
    model, optimizer = simple()
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def head_is_trained(parameters_of):
    body, head = nn.Linear(4, 4), nn.Linear(4, 2)
    body.requires_grad_(False)
    optimizer = torch.optim.SGD(parameters_of(body, head), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(head(body(X)), Y).backward()
        optimizer.step()  # finds: step-without-gradient  [frozen]


def optimizer_of_the_frozen_part():  # [frozen]
    head_is_trained(lambda body, head: body.parameters())


def optimizer_of_the_head_fixed():
    head_is_trained(lambda body, head: head.parameters())


def average_with_itself():
    model, optimizer = simple()
    average = model
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.mul_(0.9).add_(new, alpha=0.1)  # finds: copied-onto-itself


def average_of_a_copy_fixed():
    model, optimizer = simple()
    average = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).requires_grad_(False)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.mul_(0.9).add_(new, alpha=0.1)


def doubled_in_place_lookalike():
    x = torch.randn(4)
    x.mul_(2).add_(x)


def relu_before_sigmoid():
    model = nn.Sequential(nn.Linear(4, 1), nn.ReLU(), nn.Sigmoid())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.binary_cross_entropy(model(X), (Y[:, :1] > 0).float()).backward()  # finds: clipped-logits
        optimizer.step()


def no_relu_before_sigmoid_fixed():
    model = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.binary_cross_entropy(model(X), (Y[:, :1] > 0).float()).backward()
        optimizer.step()


def advantage_of_each_with_each():
    policy, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*policy.parameters(), *critic.parameters()], lr=0.1)
    for _ in range(2):
        chosen = torch.distributions.Categorical(logits=policy(X))
        advantage = torch.randn(16) - critic(X)  # finds: broadcast
        optimizer.zero_grad()
        action = chosen.sample()
        (advantage.pow(2).mean() - (chosen.log_prob(action) * advantage.detach()).mean()).backward()
        optimizer.step()


def advantage_fixed():
    policy, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*policy.parameters(), *critic.parameters()], lr=0.1)
    for _ in range(2):
        chosen = torch.distributions.Categorical(logits=policy(X))
        advantage = torch.randn(16) - critic(X).squeeze(1)
        optimizer.zero_grad()
        action = chosen.sample()
        (advantage.pow(2).mean() - (chosen.log_prob(action) * advantage.detach()).mean()).backward()
        optimizer.step()
