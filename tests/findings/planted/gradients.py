"""Graphs that are cut, gradients that are not cleared, parameters that nobody updates."""

import torch
import torch.nn.functional as F
from torch import nn

X, Y = torch.randn(8, 4), torch.randint(0, 3, (8,))


def model_of(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, classes))


def loss_made_anew():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss = torch.tensor(loss.item(), requires_grad=True)
        loss.backward()  # finds: loss-is-a-leaf
        optimizer.step()


def loss_made_anew_fixed():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()


def loss_detached():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y).detach().requires_grad_()
        loss.backward()  # finds: loss-is-a-leaf
        optimizer.step()


def input_optimised_lookalike():
    image = torch.randn(1, 4, requires_grad=True)
    optimizer = torch.optim.Adam([image], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        image.pow(2).sum().backward()
        optimizer.step()


def no_zero_grad():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()  # finds: gradients-pile-up


def no_zero_grad_fixed():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def no_zero_grad_adam_closure_free():
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.zero_grad()
    for _ in range(5):
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # finds: gradients-pile-up


def accumulation_lookalike():
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    for i in range(9):
        (F.cross_entropy(model(X), Y) / 3).backward()
        if i % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


def cleared_by_hand_lookalike():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.zero_()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()


def zero_grad_between():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        F.cross_entropy(model(X), Y).backward()
        optimizer.zero_grad()
        optimizer.step()  # finds: step-without-gradient


def zero_grad_between_in_place():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        F.cross_entropy(model(X), Y).backward()
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()  # finds: step-without-gradient


def zero_grad_between_fixed():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        optimizer.zero_grad()


def no_backward():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        optimizer.step()  # finds: step-without-gradient
        print(loss.item())


def one_step_before_backward_lookalike():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()
    F.cross_entropy(model(X), Y).backward()


def steps_twice():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        optimizer.step()  # finds: step-twice


class Listed(nn.Module):
    def __init__(self, registered):
        super().__init__()
        layers = [nn.Linear(4, 4) for _ in range(2)]
        self.layers = nn.ModuleList(layers) if registered else layers
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))  # finds: unregistered  [listed]
        return self.head(x)


def train(model, rounds=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(rounds):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()


def layers_in_a_list():  # [listed]
    train(Listed(False))


def layers_in_a_module_list_fixed():
    train(Listed(True))


class MadeInForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)

    def forward(self, x):
        head = nn.Linear(6, 3)  # finds: unregistered  [made]
        return head(F.relu(self.body(x)))


def layer_made_in_forward():  # [made]
    train(MadeInForward())


class Scaled(nn.Module):
    def __init__(self, registered):
        super().__init__()
        self.body = nn.Linear(4, 3)
        scales = [nn.Parameter(torch.ones(3))]
        self.scales = nn.ParameterList(scales) if registered else scales

    def forward(self, x):
        return self.body(x) * self.scales[0]  # finds: unregistered  [scaled]


def parameter_in_a_list():  # [scaled]
    train(Scaled(False))


def parameter_in_a_parameter_list_fixed():
    train(Scaled(True))


def head_replaced_after_the_optimizer():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[2] = nn.Linear(8, 3)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()  # finds: stale-optimizer


def head_replaced_before_the_optimizer_fixed():
    model = model_of(5)
    model[2] = nn.Linear(8, 3)
    train(model)


def new_model_in_each_fold():
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    for fold in range(2):
        model = model_of()
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()  # finds: stale-optimizer


def new_model_in_each_fold_fixed():
    for fold in range(2):
        train(model_of())


class Autoencoder(nn.Module):
    def __init__(self, cut):
        super().__init__()
        self.encoder, self.decoder, self.cut = nn.Linear(4, 2), nn.Linear(2, 4), cut

    def forward(self, x):
        return self.decoder(self.cut(self.encoder(x)))


def train_autoencoder(model):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(X), X).backward()
        optimizer.step()


def detached_in_the_middle():
    train_autoencoder(Autoencoder(lambda z: z.detach()))  # finds: no-gradient


def made_anew_in_the_middle():
    cut = lambda z: torch.from_numpy(z.detach().numpy()) + 1  # finds: no-gradient
    train_autoencoder(Autoencoder(cut))


def compared_in_the_middle():
    train_autoencoder(Autoencoder(lambda z: (z > 0).float()))  # finds: no-gradient


def not_cut_fixed():
    train_autoencoder(Autoencoder(torch.tanh))


def frozen_encoder_lookalike():
    model = Autoencoder(lambda z: z.detach())
    optimizer = torch.optim.Adam(model.decoder.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(X), X).backward()
        optimizer.step()


def decoder_forgotten():
    encoder, decoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), nn.Linear(2, 4)
    optimizer = torch.optim.Adam(encoder.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(decoder(encoder(X)), X).backward()  # finds: not-in-optimizer
        optimizer.step()


def decoder_not_forgotten_fixed():
    encoder, decoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), nn.Linear(2, 4)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(decoder(encoder(X)), X).backward()
        optimizer.step()


def clipped_after_the_step():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # finds: clipping


def clipped_before_the_step_fixed():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def clipped_between_the_steps_of_two_optimizers_fixed():
    model, head = model_of(), nn.Linear(3, 3)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, head)]
    for _ in range(4):
        for each in optimizers:
            each.zero_grad()
        F.cross_entropy(head(model(X)), Y).backward()
        optimizers[0].step()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizers[1].step()


def clipped_after_its_own_step_and_another_backward():
    model, head = model_of(), nn.Linear(4, 3)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, head)]
    for _ in range(4):
        for each in optimizers:
            each.zero_grad()
        F.cross_entropy(head(X), Y).backward()
        optimizers[1].step()
        F.cross_entropy(model(X), Y).backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)  # finds: clipping
        optimizers[0].step()


def clipped_while_scaled():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(X), Y)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # finds: clipping
        scaler.step(optimizer)
        scaler.update()


def clipped_when_unscaled_fixed():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(X), Y)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def losses_kept():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        total += loss  # finds: loss-kept
    print(float(total))


def losses_kept_in_a_list():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    print(torch.stack(losses).mean().item())  # finds: loss-kept


def losses_kept_fixed():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(float(total))


def losses_summed_lookalike():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0
    for _ in range(4):
        total = total + F.cross_entropy(model(X), Y)
    total.backward()
    optimizer.step()


def never_stepped():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()  # finds: never-stepped
        optimizer.step  # finds: not-called


def gradient_of_the_input_lookalike():
    model = model_of()
    for _ in range(4):
        x = X.clone().requires_grad_()
        model.zero_grad()
        F.cross_entropy(model(x), Y).backward()
        print(x.grad.norm().item())


def updated_by_hand_lookalike():
    model = model_of()
    for _ in range(4):
        model.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad


def second_loss_as_a_number():
    body, other = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*body.parameters(), *other.parameters()], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        extra = F.cross_entropy(other(X), Y)
        loss = F.cross_entropy(body(X), Y) + extra.item()  # finds: no-gradient
        loss.backward()
        optimizer.step()


def second_loss_as_a_number_fixed():
    body, other = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*body.parameters(), *other.parameters()], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        extra = F.cross_entropy(other(X), Y)
        loss = F.cross_entropy(body(X), Y) + extra
        loss.backward()
        optimizer.step()


def _adversarial(early):
    torch.manual_seed(0)
    generator, critic = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    first, second = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    ones, zeros = torch.ones(6, 1), torch.zeros(6, 1)
    for _ in range(3):
        fake = generator(torch.randn(6, 3))
        loss = F.binary_cross_entropy(critic(torch.randn(6, 4)), ones) + F.binary_cross_entropy(critic(fake), zeros)
        first.zero_grad()
        loss.backward()
        first.step()
        if early:
            second.zero_grad()
        F.binary_cross_entropy(critic(generator(torch.randn(6, 3))), ones).backward()
        second.step()  # finds: gradient-leak  [leak]
        second.zero_grad()


def gradient_of_the_critic_leaks():  # [leak]
    _adversarial(False)


def gradient_of_the_critic_cleared_fixed():
    _adversarial(True)


class Taught(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 2))
        self.student = nn.Linear(4, 2)

    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher(x)  # finds: no-gradient  [taught]
        return F.mse_loss(self.student(x), wanted)


def teach(model, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).backward()
        optimizer.step()


def one_finding_for_a_whole_network_without_gradients():  # [taught]
    model = Taught()
    teach(model, model.parameters())


def teacher_is_in_no_optimizer_fixed():
    model = Taught()
    teach(model, model.student.parameters())
