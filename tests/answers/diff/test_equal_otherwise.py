"""Programs that compute the same in another way are called equal: summed losses, gradients without a loss."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.answers.diff import matching
from torchglass.answers.diff.side import RunSide


def recorded(program) -> tg.Trace:
    with tg.record(ops=True, values="stats+sketch") as trace:
        program()
    return trace


def test_a_sum_of_losses_is_two_losses_one_after_the_other():
    torch.manual_seed(0)
    judge = nn.Linear(6, 1)
    real, fake = torch.randn(8, 6), torch.randn(8, 6)

    def one_by_one():
        judge.zero_grad()
        F.binary_cross_entropy_with_logits(judge(real), torch.ones(8, 1)).backward()
        F.binary_cross_entropy_with_logits(judge(fake), torch.zeros(8, 1)).backward()
        return [each.grad * 2 for each in judge.parameters()]

    def together():
        judge.zero_grad()
        (F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean()).backward()
        return [each.grad * 2 for each in judge.parameters()]

    assert recorded(one_by_one).diff(recorded(together)).equal


def test_gradients_by_hand_need_no_loss():
    torch.manual_seed(0)
    net = nn.Linear(12, 5)
    x, y = torch.randn(10, 12), torch.arange(10) % 5

    def automatic():
        net.zero_grad()
        F.cross_entropy(net(x), y).backward()
        return net.weight.grad * 2

    def by_hand():
        with torch.no_grad():
            apart = (torch.softmax(net(x), -1) - F.one_hot(y, 5)) / 10
            return (apart.T @ x) * 2, apart.sum(0)

    assert recorded(automatic).diff(recorded(by_hand)).equal


def test_what_a_clamp_leaves_has_the_errors_of_what_it_cuts_off():
    torch.manual_seed(0)
    x, w = torch.randn(256, 48), 1000 * torch.randn(48, 256)

    def at_once():
        return torch.tanh(2 * (x @ w).clamp(-1, 1))

    def in_pieces():
        pieces = [x[:, at : at + 12] @ w[at : at + 12] for at in (24, 36, 0, 12)]
        return torch.tanh(2 * sum(pieces).clamp(-1, 1))

    assert recorded(at_once).diff(recorded(in_pieces)).equal
    # A limit that differs is still found.
    assert not recorded(at_once).diff(recorded(lambda: torch.tanh(2 * (x @ w).clamp(-1, 1.001)))).equal


class Summed(nn.Module):
    """Returns its outputs, and sums that the programs below do not use."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 8)

    def forward(self, x):
        h = self.linear(x)
        return torch.tanh(h), h.cumsum(0) * 3


def test_an_output_of_a_module_that_nobody_uses_is_no_result():
    torch.manual_seed(0)
    net, x = Summed(), torch.randn(10, 6)
    weight, bias = (each.detach().clone() for each in net.parameters())

    def with_sums():
        return net(x)[0] * 2

    def without():
        return torch.tanh(F.linear(x, weight, bias)) * 2

    assert recorded(with_sums).diff(recorded(without)).equal


def test_a_parameter_may_be_updated_in_parts():
    torch.manual_seed(0)
    net, x = nn.Linear(6, 8), torch.randn(10, 6)
    other = nn.Linear(6, 8)
    other.load_state_dict(net.state_dict())

    @torch.no_grad()
    def at_once():
        net(x)
        net.weight.mul_(0.9)

    @torch.no_grad()
    def in_parts():
        other(x)
        for part in other.weight.split(4):
            part.mul_(0.9)

    assert recorded(at_once).diff(recorded(in_parts)).equal


def test_what_is_written_in_parts_is_used_as_a_whole():
    torch.manual_seed(0)
    net, x = nn.Linear(6, 8), torch.randn(10, 6)
    other = nn.Linear(6, 8)
    other.load_state_dict(net.state_dict())

    @torch.no_grad()
    def at_once():
        net(x)
        return net.weight.mul_(0.9) * 2

    @torch.no_grad()
    def in_parts():
        other(x)
        for part in other.weight.split(2):
            part.mul_(0.9)
        return other.weight * 2

    assert recorded(at_once).diff(recorded(in_parts)).equal


def test_a_gradient_that_the_backward_pass_makes_for_itself_is_no_result():
    torch.manual_seed(0)
    rnn, x = nn.RNN(6, 8), torch.randn(5, 6)
    w_in, w_state, b_in, b_state = rnn.parameters()

    def by_the_library():
        rnn.zero_grad()
        rnn(x)[0].square().mean().backward()
        return [each.grad * 2 for each in rnn.parameters()]

    def step_by_step():
        rnn.zero_grad()
        h, states = torch.zeros(8), []
        for each in x:
            h = torch.tanh(w_in @ each + b_in + w_state @ h + b_state)
            states.append(h)
        torch.stack(states).square().mean().backward()
        return [each.grad * 2 for each in rnn.parameters()]

    assert recorded(by_the_library).diff(recorded(step_by_step)).equal


def test_a_loss_may_be_made_in_other_steps():
    torch.manual_seed(0)
    net, x, z = nn.Linear(12, 8), torch.randn(10, 12), torch.randn(10, 8)

    def with_products():
        net.zero_grad()
        logits = F.normalize(net(x), dim=1) @ F.normalize(z, dim=1).t() / 0.2
        F.cross_entropy(logits, torch.arange(10)).backward()
        return [each.grad * 2 for each in net.parameters()]

    def with_angles():
        net.zero_grad()
        s = F.cosine_similarity(net(x)[:, None], z[None], dim=-1) * 5.0
        (s.logsumexp(1) - s.diagonal()).mean().backward()
        return [each.grad * 2 for each in net.parameters()]

    assert recorded(with_products).diff(recorded(with_angles)).equal


@pytest.mark.parametrize("is_stored_twice", [False, True])
def test_the_same_step_may_be_off_a_little_more(monkeypatch, is_stored_twice):
    """An error is an estimate. Where both runs do the same with inputs that agree, nothing can be wrong."""
    torch.manual_seed(0)
    table, mixed = torch.randn(20, 12), torch.randn(12, 12)
    copy = table.clone() if is_stored_twice else table

    def one():
        return torch.tanh(table @ mixed) @ table.T

    def other():
        h = table[:, 6:] @ mixed[6:] + table[:, :6] @ mixed[:6]
        return torch.tanh(h) @ copy.T

    a, b = (RunSide(recorded(each)._tables) for each in (one, other))
    last = a.things[-1].number
    error = matching.Matcher(a, b).match().of_a[last].error
    expected = matching.expected_error

    def match_with(tolerance: float) -> matching.Matching:
        def narrow(bits: int, step: int, amplification: float, known: float, unknown: float = 0.0) -> float:
            is_last = len(matcher._allowed_a) in (last, last + 1)
            return tolerance if is_last else expected(bits, step, amplification, known, unknown)

        monkeypatch.setattr(matching, "expected_error", narrow)
        matcher = matching.Matcher(a, b)
        return matcher.match()

    assert last in match_with(error / 1.2).of_a
    assert last not in match_with(error / 2).of_a


def test_half_precision_may_scale_before_or_after_a_product():
    torch.manual_seed(0)
    x, table = torch.randn(20, 32), torch.randn(32, 40)
    layers = [torch.randn(32, 32) / 5 for _ in range(12)]
    half_x, half_table, half_layers = x.bfloat16(), table.bfloat16(), [each.bfloat16() for each in layers]

    def after():
        h = x
        for w in layers:
            h = torch.tanh(h @ w)
        return (h @ table) * 0.25

    def before():
        h = half_x
        for w in half_layers:
            h = torch.tanh(h @ w)
        return h @ (half_table * 0.25)

    assert recorded(after).diff(recorded(before)).equal


def normed(x: torch.Tensor, layers: list[torch.Tensor], is_eps_wrong: bool = False) -> torch.Tensor:
    for number, w in enumerate(layers):
        eps = 1e-2 if is_eps_wrong and number == 40 else 1e-5
        x = x + torch.tanh(F.linear(F.layer_norm(x, (16,), eps=eps), w)) / 2
        x = x * (8 / x.norm())
    return x


def test_layers_whose_results_all_have_the_same_norm():
    torch.manual_seed(0)
    x, layers = torch.randn(8, 16), [torch.randn(16, 16) / 4 for _ in range(80)]

    def other_way():
        h = x
        for w in layers:
            h = h + torch.tanh(F.layer_norm(h, (16,)) @ w.T) * 0.5
            h = h / h.norm() * 8

    a = recorded(other_way)
    assert a.diff(recorded(lambda: normed(x, layers))).equal
    found = a.diff(recorded(lambda: normed(x, layers, is_eps_wrong=True)))
    assert found.first is not None
    assert "eps" in [each.name for each in found.first.suspects]


def test_one_program_maximises_what_the_other_minimises():
    torch.manual_seed(0)
    net, x, y = nn.Linear(12, 5), torch.randn(10, 12), torch.arange(10) % 5
    start = {name: each.clone() for name, each in net.state_dict().items()}

    def trained(sign, maximize, smoothing=0.0):
        net.load_state_dict(start)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, maximize=maximize)
        optimizer.zero_grad()
        if sign > 0:
            loss = F.cross_entropy(net(x), y, label_smoothing=smoothing)
        else:
            loss = F.log_softmax(net(x), -1).gather(1, y[:, None]).mean()
        loss.backward()
        optimizer.step()

    smaller = recorded(lambda: trained(1, False))
    assert smaller.diff(recorded(lambda: trained(-1, True))).equal
    assert not smaller.diff(recorded(lambda: trained(1, True))).equal
    assert not recorded(lambda: trained(1, False, 0.1)).diff(recorded(lambda: trained(-1, True))).equal


def test_two_ranks_that_average_their_gradients_are_one_with_the_whole_batch():
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    start = {name: each.clone() for name, each in first.state_dict().items()}
    batches = [(torch.randn(8, 6), torch.randn(8, 3)) for _ in range(2)]

    def alone():
        first.load_state_dict(start)
        optimizer = torch.optim.SGD(first.parameters(), lr=0.1, momentum=0.9)
        for x, y in batches:
            optimizer.zero_grad()
            F.mse_loss(first(x), y).backward()
            optimizer.step()

    def in_two(by=2):
        first.load_state_dict(start)
        second = copy.deepcopy(first)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (first, second)]
        for x, y in batches:
            for rank, half in ((first, slice(0, 4)), (second, slice(4, 8))):
                rank.zero_grad()
                F.mse_loss(rank(x[half]), y[half]).backward()
            for p, q in zip(first.parameters(), second.parameters(), strict=True):
                mean = (p.grad + q.grad) / by
                p.grad.copy_(mean)
                q.grad.copy_(mean)
            for optimizer in optimizers:
                optimizer.step()

    one = recorded(alone)
    assert one.diff(recorded(in_two)).equal
    assert not one.diff(recorded(lambda: in_two(by=1))).equal


def test_a_batch_in_another_order_in_half_precision():
    torch.manual_seed(0)
    table, net = nn.Embedding(30, 16).bfloat16(), nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 7))
    net = net.bfloat16()
    ids = torch.randint(0, 30, (4, 6))
    turned = ids.flip(0)

    def run(tokens):
        return net(table(tokens))

    assert recorded(lambda: run(ids)).diff(recorded(lambda: run(turned))).equal
    net[0].weight.data *= 1.5
    found = recorded(lambda: run(turned))
    net[0].weight.data /= 1.5
    assert not recorded(lambda: run(ids)).diff(found).equal


def test_a_gradient_with_a_penalty_is_more_than_one_without():
    """All that one run computes agrees, but the other one adds to its gradients."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 1)), torch.randn(5, 6)

    def gradients(weight):
        net.zero_grad()
        points = x.clone().requires_grad_()
        loss = net(points).mean()
        (slope,) = torch.autograd.grad(loss, points, create_graph=True)
        if weight:
            loss = loss + weight * slope.square().sum()
        loss.backward()

    with_penalty = recorded(lambda: gradients(0.5))
    assert not with_penalty.diff(recorded(lambda: gradients(0.0))).equal
    assert not recorded(lambda: gradients(0.0)).diff(with_penalty).equal
    assert with_penalty.diff(recorded(lambda: gradients(0.5))).equal


def test_gradients_of_torch_func_are_results():
    torch.manual_seed(0)
    net, x, y = nn.Linear(6, 3), torch.randn(5, 6), torch.randn(5, 3)
    weights = [each.detach().clone() for each in net.parameters()]

    def second_order():
        net.zero_grad()
        parameters = list(net.parameters())
        grads = torch.autograd.grad(F.mse_loss(net(x), y), parameters, create_graph=True)
        fast = [p - 0.1 * g for p, g in zip(parameters, grads, strict=True)]
        F.mse_loss(F.linear(x, *fast), y).backward()

    def by_functions(is_first_order):
        def inner(w):
            return (x @ w[0].T + w[1] - y).square().mean()

        def outer(w):
            grads = torch.func.grad(inner)(w)
            if is_first_order:
                grads = [each.detach() for each in grads]
            return inner([p - 0.1 * g for p, g in zip(w, grads, strict=True)])

        return torch.func.grad_and_value(outer)(weights)

    exact = recorded(second_order)
    assert exact.diff(recorded(lambda: by_functions(False))).equal
    assert not exact.diff(recorded(lambda: by_functions(True))).equal
