"""Bugs of a third set that was written after the detectors: from public issues, forums and repositories."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def train(parameters, loss_of):
    optimizer = optim.Adam(list(parameters), lr=0.01)
    for _ in range(3):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mlp(i, o, h=16):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, o))


class EvaAttn(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.qkv, self.proj, self.fixed = nn.Linear(16, 48), nn.Linear(16, 16), fixed

    def forward(self, x, mask):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        attn = q @ k.transpose(-2, -1) * 0.5
        if self.fixed:
            attn = attn.masked_fill(~mask[:, None, None, :], float("-inf"))
            attn = attn.softmax(dim=-1)
        else:
            attn = attn.softmax(dim=-1)
            attn = attn.masked_fill(  # finds: mask-added [weights_filled_after_the_softmax]
                ~mask[:, None, None, :], -1e4
            )
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


def _weights_filled_after_the_softmax(fixed):
    m = EvaAttn(fixed)
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[:, 5:] = False
    train(m.parameters(), lambda: m(torch.randn(3, 7, 16), mask).pow(2).mean())


def weights_filled_after_the_softmax():  # [weights_filled_after_the_softmax]
    _weights_filled_after_the_softmax(False)


class FilledWithInfinity(EvaAttn):
    def forward(self, x, mask):
        weights = (x @ x.transpose(1, 2)).softmax(dim=-1)
        weights = weights.masked_fill(~mask[:, None, :], float("-inf"))  # finds: mask-added [weights_minus_infinity]
        return self.proj(weights @ x)


def weights_filled_with_minus_infinity():  # [weights_minus_infinity]
    mask = torch.arange(7) < torch.tensor([[7], [7], [5]])
    m = FilledWithInfinity(False)
    m(torch.randn(3, 7, 16), mask)


def weights_filled_after_the_softmax_fixed():
    _weights_filled_after_the_softmax(True)


class BiAtt(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.emb, self.lstm, self.out, self.fixed = (
            nn.Embedding(20, 6),
            nn.LSTM(6, 5, bidirectional=True),
            nn.Linear(10, 2),
            fixed,
        )

    def forward(self, x):
        out, (h, c) = self.lstm(self.emb(x).permute(1, 0, 2))
        out = out.permute(1, 0, 2)
        if self.fixed:
            hidden = h.transpose(0, 1).reshape(len(x), -1, 1)
        else:
            hidden = h.view(len(x), -1, 1)  # finds: view-for-transpose [states_of_both_directions_viewed]
        w = torch.bmm(out, hidden).squeeze(2)
        w = F.softmax(w, 1)
        ctx = torch.bmm(out.transpose(1, 2), w.unsqueeze(2)).squeeze(2)
        return self.out(ctx)


def _states_of_both_directions_viewed(fixed):
    m = BiAtt(fixed)
    train(m.parameters(), lambda: F.cross_entropy(m(torch.randint(0, 20, (6, 7))), torch.randint(0, 2, (6,))))


def states_of_both_directions_viewed():  # [states_of_both_directions_viewed]
    _states_of_both_directions_viewed(False)


def states_of_both_directions_viewed_fixed():
    _states_of_both_directions_viewed(True)


class SVAE(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.emb, self.enc, self.h2m = (
            nn.Embedding(20, 6),
            nn.GRU(6, 8, num_layers=2, batch_first=True),
            nn.Linear(16, 4),
        )
        self.h2v, self.l2h, self.dec, self.o = (
            nn.Linear(16, 4),
            nn.Linear(4, 8),
            nn.GRU(6, 8, batch_first=True),
            nn.Linear(8, 20),
        )

    def forward(self, x):
        e = self.emb(x)
        _, h = self.enc(e)
        if self.fixed:
            h = h.permute(1, 0, 2).reshape(len(x), 16)
        else:
            h = h.view(len(x), 16)  # finds: view-for-transpose [states_of_all_layers_viewed]
        m, lv = self.h2m(h), self.h2v(h)
        z = m + torch.exp(0.5 * lv) * torch.randn_like(lv)
        out, _ = self.dec(e, self.l2h(z).unsqueeze(0))
        return F.log_softmax(self.o(out), dim=-1), m, lv


def _states_of_all_layers_viewed(fixed):
    m = SVAE(fixed)

    def loss():
        x = torch.randint(0, 20, (5, 9))
        logp, mu, lv = m(x)
        return F.nll_loss(logp.view(-1, 20), x.view(-1)) - 0.5 * torch.mean(1 + lv - mu.pow(2) - lv.exp())

    train(m.parameters(), loss)


def states_of_all_layers_viewed():  # [states_of_all_layers_viewed]
    _states_of_all_layers_viewed(False)


def states_of_all_layers_viewed_fixed():
    _states_of_all_layers_viewed(True)


def _weights_of_samples_times_maps(fixed):
    net = nn.Conv2d(2, 2, 3, padding=1)

    def loss():
        x, eps, t = torch.randn(6, 2, 5, 7), torch.randn(6, 2, 5, 7), torch.rand(6, 1, 1, 1)
        w = 1 + t
        err = (net(x * (1 - t) + eps * t) - eps) ** 2
        if fixed:
            return (w * err).mean()
        return (w * err.mean(1)).mean()  # finds: broadcast [weights_of_samples_times_maps]

    train(net.parameters(), loss)


def weights_of_samples_times_maps():  # [weights_of_samples_times_maps]
    _weights_of_samples_times_maps(False)


def weights_of_samples_times_maps_fixed():
    _weights_of_samples_times_maps(True)


def _scores_into_ctc(fixed):
    rnn, fc = nn.LSTM(6, 8, bidirectional=True), nn.Linear(16, 10)
    ctc = nn.CTCLoss(zero_infinity=True)

    def loss():
        out, _ = rnn(torch.randn(20, 4, 6))
        logits = fc(out)
        if fixed:
            logits = logits.log_softmax(2)
        return ctc(  # finds: not-log-probabilities [scores_into_ctc]
            logits, torch.randint(1, 10, (4, 6)), torch.full((4,), 20), torch.full((4,), 6)
        )

    train([*rnn.parameters(), *fc.parameters()], loss)


def scores_into_ctc():  # [scores_into_ctc]
    _scores_into_ctc(False)


def scores_into_ctc_fixed():
    _scores_into_ctc(True)


class Pos1(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.tok, self.pos, self.fixed = nn.Embedding(20, 16), nn.Embedding(32, 16), fixed
        self.enc, self.head = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 20)

    def forward(self, x):
        if self.fixed:
            pos = torch.arange(x.size(1)).unsqueeze(0)
        else:
            pos = torch.arange(x.size(0)).unsqueeze(1)
        h = self.tok(x) + self.pos(pos)  # finds: sequence-axis [positions_counted_along_the_batch]
        return self.head(self.enc(h))


def _positions_counted_along_the_batch(fixed):
    m = Pos1(fixed)
    train(
        m.parameters(),
        lambda: F.cross_entropy(m(torch.randint(0, 20, (6, 9))).reshape(-1, 20), torch.randint(0, 20, (54,))),
    )


def positions_counted_along_the_batch():  # [positions_counted_along_the_batch]
    _positions_counted_along_the_batch(False)


def positions_counted_along_the_batch_fixed():
    _positions_counted_along_the_batch(True)


class PE(nn.Module):
    def __init__(self, d, fixed, n=100):
        super().__init__()
        pos = torch.arange(n).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(n, 1, d)
        pe[:, 0, 0::2], pe[:, 0, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer("pe", pe)
        self.fixed = fixed

    def forward(self, x):
        if self.fixed:
            return x + self.pe[: x.size(1)].transpose(0, 1)
        return x + self.pe[: x.size(0)]  # finds: sequence-axis [table_of_positions_cut_along_the_batch]


class Pos2(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.inp, self.pe = nn.Linear(3, 16), PE(16, fixed)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.enc(self.pe(self.inp(x)))[:, -1])


def _table_of_positions_cut_along_the_batch(fixed):
    m = Pos2(fixed)
    train(m.parameters(), lambda: F.mse_loss(m(torch.randn(6, 9, 3)), torch.randn(6, 1)))


def table_of_positions_cut_along_the_batch():  # [table_of_positions_cut_along_the_batch]
    _table_of_positions_cut_along_the_batch(False)


def table_of_positions_cut_along_the_batch_fixed():
    _table_of_positions_cut_along_the_batch(True)


def dice(p, t, act):
    if act:
        p = torch.sigmoid(p)  # finds: softmax-twice [sigmoid_of_softmax]
    inter = (p * t).sum()
    return 1 - (2 * inter + 1) / (p.sum() + t.sum() + 1)


def _sigmoid_of_softmax(fixed):
    net = nn.Conv2d(3, 4, 3, padding=1)

    def loss():
        x = torch.randn(2, 3, 8, 8)
        t = F.one_hot(torch.randint(0, 4, (2, 8, 8)), 4).permute(0, 3, 1, 2).float()
        out = F.softmax(net(x), dim=1)
        return sum(dice(out[:, i], t[:, i], not fixed) for i in range(4)) / 4

    train(net.parameters(), loss)


def sigmoid_of_softmax():  # [sigmoid_of_softmax]
    _sigmoid_of_softmax(False)


def sigmoid_of_softmax_fixed():
    _sigmoid_of_softmax(True)


class DotAtt(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin, self.soft = nn.Linear(12, 6), nn.Softmax(dim=dim)

    def forward(self, q, ctx):
        B, Q, _ = q.shape
        scores = torch.bmm(q, ctx.transpose(1, 2)).view(B * Q, -1)
        w = self.soft(scores).view(B, Q, -1)  # finds: softmax-axis [weights_over_all_queries]
        return torch.tanh(self.lin(torch.cat((torch.bmm(w, ctx), q), dim=2)))


def _weights_over_all_queries(fixed):
    m, e = DotAtt(-1 if fixed else 0), nn.Linear(4, 6)
    train([*m.parameters(), *e.parameters()], lambda: m(e(torch.randn(3, 2, 4)), e(torch.randn(3, 5, 4))).pow(2).mean())


def weights_over_all_queries():  # [weights_over_all_queries]
    _weights_over_all_queries(False)


def weights_over_all_queries_fixed():
    _weights_over_all_queries(True)


def _vectors_normalised_over_the_batch(fixed):
    enc = mlp(6, 8)

    def loss():
        x = torch.randn(10, 6)
        a = F.normalize(  # finds: normalised-axis [vectors_normalised_over_the_batch]
            enc(x + 0.1 * torch.randn_like(x)), dim=1 if fixed else 0
        )
        b = F.normalize(  # finds: normalised-axis [vectors_normalised_over_the_batch]
            enc(x + 0.1 * torch.randn_like(x)), dim=1 if fixed else 0
        )
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(10))

    train(enc.parameters(), loss)


def vectors_normalised_over_the_batch():  # [vectors_normalised_over_the_batch]
    _vectors_normalised_over_the_batch(False)


def vectors_normalised_over_the_batch_fixed():
    _vectors_normalised_over_the_batch(True)


class Attn(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attn, self.v, self.dim = nn.Linear(16, 8), nn.Linear(8, 1, bias=False), dim
        self.gru, self.out = nn.GRUCell(8, 8), nn.Linear(8, 12)

    def forward(self, h, enc):
        T = enc.size(0)
        e = torch.tanh(self.attn(torch.cat((h.unsqueeze(0).repeat(T, 1, 1), enc), 2)))
        e = self.v(e).squeeze(2).t()
        w = F.softmax(e, dim=self.dim).unsqueeze(1)  # finds: softmax-axis [additive_attention_over_the_batch]
        ctx = w.bmm(enc.transpose(0, 1)).squeeze(1)
        h = self.gru(ctx, h)
        return self.out(h), h


def _additive_attention_over_the_batch(fixed):
    m, enc = Attn(1 if fixed else 0), nn.GRU(5, 8)

    def loss():
        outs, h = enc(torch.randn(7, 3, 5))
        h, total = h[0], 0
        for _ in range(4):
            o, h = m(h, outs)
            total = total + F.cross_entropy(o, torch.randint(0, 12, (3,)))
        return total / 4

    train([*m.parameters(), *enc.parameters()], loss)


def additive_attention_over_the_batch():  # [additive_attention_over_the_batch]
    _additive_attention_over_the_batch(False)


def additive_attention_over_the_batch_fixed():
    _additive_attention_over_the_batch(True)


class S2S(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.g, self.o = nn.Embedding(15, 8), nn.GRU(8, 8), nn.Linear(8, 15)

    def forward(self, x):
        return self.o(self.g(self.e(x.t()))[0])


def _flattened_in_different_orders(fixed):
    m = S2S()

    def loss():
        src, trg = torch.randint(0, 15, (4, 7)), torch.randint(0, 15, (4, 7))
        out = m(src)
        if fixed:
            out = out.transpose(0, 1)
        return F.cross_entropy(  # finds: flattened-differently [flattened_in_different_orders]
            out.reshape(-1, 15), trg.reshape(-1)
        )

    train(m.parameters(), loss)


def flattened_in_different_orders():  # [flattened_in_different_orders]
    _flattened_in_different_orders(False)


def flattened_in_different_orders_fixed():
    _flattened_in_different_orders(True)


def _temperature_in_no_optimizer(fixed):
    pi = mlp(4, 2)
    log_alpha = torch.zeros(1, requires_grad=True)
    opt = optim.Adam(pi.parameters())
    aopt = optim.Adam([log_alpha]) if fixed else opt
    for _ in range(3):
        a = pi(torch.randn(8, 4))
        d = torch.distributions.Normal(a, 1.0)
        x = d.rsample()
        logp = d.log_prob(x).sum(1)
        loss = (
            log_alpha.exp().detach() * logp - x.sum(1)  # finds: not-in-optimizer [temperature_in_no_optimizer]
        ).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        aloss = -(log_alpha * (logp.detach() + 2)).mean()
        aopt.zero_grad()
        aloss.backward()
        aopt.step()


def temperature_in_no_optimizer():  # [temperature_in_no_optimizer]
    _temperature_in_no_optimizer(False)


def temperature_in_no_optimizer_fixed():
    _temperature_in_no_optimizer(True)


def _average_of_names(fixed):
    net, ema = mlp(4, 3), mlp(4, 3)
    ema.load_state_dict(net.state_dict())
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        loss = F.cross_entropy(net(torch.randn(8, 4)), torch.randint(0, 3, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, e in zip(net.parameters(), ema.parameters()):
                if fixed:
                    e.copy_(0.99 * e + 0.01 * p)
                else:
                    e = 0.99 * e + 0.01 * p  # finds: update-lost [average_of_names]
    with torch.no_grad():
        print(ema(torch.randn(4, 4)).argmax(1))


def average_of_names():  # [average_of_names]
    _average_of_names(False)


def average_of_names_fixed():
    _average_of_names(True)


def _average_in_a_state_dict(fixed):
    net = mlp(4, 3)
    ema = copy.deepcopy(net)
    opt = optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        loss = F.cross_entropy(net(torch.randn(8, 4)), torch.randint(0, 3, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        msd = net.state_dict()
        for k in ema.state_dict():
            if fixed:
                ema.state_dict()[k].copy_(0.9 * ema.state_dict()[k] + 0.1 * msd[k])
            else:
                ema.state_dict()[k] = (
                    0.9 * ema.state_dict()[k] + 0.1 * msd[k]  # finds: update-lost [average_in_a_state_dict]
                )
    ema.eval()
    with torch.no_grad():
        print(F.cross_entropy(ema(torch.randn(4, 4)), torch.randint(0, 3, (4,))))


def average_in_a_state_dict():  # [average_in_a_state_dict]
    _average_in_a_state_dict(False)


def average_in_a_state_dict_fixed():
    _average_in_a_state_dict(True)


class Coupling(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.net, self.fixed = mlp(3, 6), fixed

    def forward(self, x):
        a, b = x.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s)
        return torch.cat([a, b * s.exp() + t], 1), s.sum(1, keepdim=not self.fixed)


def _log_det_keeps_its_axis(fixed):
    m = Coupling(fixed)
    prior = torch.distributions.Normal(0.0, 1.0)

    def loss():
        z, log_det = m(torch.randn(12, 6))
        log_p = prior.log_prob(z).sum(1)
        return -(log_p + log_det).mean()  # finds: broadcast [log_det_keeps_its_axis]

    train(m.parameters(), loss)


def log_det_keeps_its_axis():  # [log_det_keeps_its_axis]
    _log_det_keeps_its_axis(False)


def log_det_keeps_its_axis_fixed():
    _log_det_keeps_its_axis(True)


def _penalty_without_create_graph(fixed):
    G, D = mlp(4, 8), mlp(8, 1)
    od = optim.Adam(D.parameters())
    for _ in range(3):
        real, fake = torch.randn(6, 8), G(torch.randn(6, 4)).detach()
        a = torch.rand(6, 1)
        mid = (a * real + (1 - a) * fake).requires_grad_(True)
        out = D(mid)
        grad = torch.autograd.grad(out, mid, torch.ones_like(out), create_graph=fixed, retain_graph=True)[0]
        gp = ((grad.norm(2, dim=1) - 1) ** 2).mean()  # finds: term-without-gradient [penalty_without_create_graph]
        loss = D(fake).mean() - D(real).mean() + 10 * gp
        od.zero_grad()
        loss.backward()
        od.step()


def penalty_without_create_graph():  # [penalty_without_create_graph]
    _penalty_without_create_graph(False)


def penalty_without_create_graph_fixed():
    _penalty_without_create_graph(True)


class Packed(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.lstm, self.fc, self.fixed = nn.LSTM(5, 8, batch_first=True), nn.Linear(8, 2), fixed

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (h, _) = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        if self.fixed:
            return self.fc(h[-1])
        return self.fc(out[:, -1])  # finds: last-is-padding [last_step_of_padded_sequences]


def _last_step_of_padded_sequences(fixed):
    m = Packed(fixed)
    train(
        m.parameters(),
        lambda: F.cross_entropy(m(torch.randn(4, 7, 5), torch.tensor([7, 4, 3, 2])), torch.randint(0, 2, (4,))),
    )


def last_step_of_padded_sequences():  # [last_step_of_padded_sequences]
    _last_step_of_padded_sequences(False)


def last_step_of_padded_sequences_fixed():
    _last_step_of_padded_sequences(True)


class VAE(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.enc, self.dec, self.fixed = mlp(8, 6), mlp(3, 8), fixed

    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, 1)
        q = torch.distributions.Normal(mu, (0.5 * lv).exp())
        z = (
            q.rsample()
            if self.fixed
            else q.sample()  # finds: sample-without-gradient [latent_sampled_without_gradient]
        )
        kl = -0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum(1).mean()
        return self.dec(z), kl


def _latent_sampled_without_gradient(fixed):
    m = VAE(fixed)

    def loss():
        x = torch.randn(10, 8)
        r, kl = m(x)
        return F.mse_loss(r, x) + 0.1 * kl

    train(m.parameters(), loss)


def latent_sampled_without_gradient():  # [latent_sampled_without_gradient]
    _latent_sampled_without_gradient(False)


def latent_sampled_without_gradient_fixed():
    _latent_sampled_without_gradient(True)


def _overlap_of_thresholded_masks(fixed):
    net = nn.Conv2d(3, 1, 3, padding=1)

    def loss():
        out, y = net(torch.randn(2, 3, 8, 8)), torch.randint(0, 2, (2, 1, 8, 8)).float()
        p = torch.sigmoid(out)
        if not fixed:
            p = (p > 0.5).float()
        d = 1 - (2 * (p * y).sum() + 1) / (  # finds: term-without-gradient [overlap_of_thresholded_masks]
            p.sum() + y.sum() + 1
        )
        return F.binary_cross_entropy_with_logits(out, y) + d

    train(net.parameters(), loss)


def overlap_of_thresholded_masks():  # [overlap_of_thresholded_masks]
    _overlap_of_thresholded_masks(False)


def overlap_of_thresholded_masks_fixed():
    _overlap_of_thresholded_masks(True)


def _ctc_over_the_batch(fixed):
    rnn, fc = nn.GRU(6, 8), nn.Linear(8, 10)

    def loss():
        out, _ = rnn(torch.randn(20, 4, 6))
        logp = fc(out).log_softmax(2 if fixed else 1)  # finds: softmax-axis [ctc_over_the_batch]
        return F.ctc_loss(
            logp, torch.randint(1, 10, (4, 6)), torch.full((4,), 20), torch.full((4,), 6), zero_infinity=True
        )

    train([*rnn.parameters(), *fc.parameters()], loss)


def ctc_over_the_batch():  # [ctc_over_the_batch]
    _ctc_over_the_batch(False)


def ctc_over_the_batch_fixed():
    _ctc_over_the_batch(True)


def _tokens_normalised_along_the_sequence(fixed):
    enc = nn.Linear(5, 8)
    dim = -1 if fixed else 1

    def loss():
        q, d = enc(torch.randn(4, 6, 5)), enc(torch.randn(4, 9, 5))
        q = F.normalize(q, dim=dim)  # finds: normalised-axis [tokens_normalised_along_the_sequence]
        d = F.normalize(d, dim=dim)  # finds: normalised-axis [tokens_normalised_along_the_sequence]
        sim = torch.einsum("aqe,bde->abqd", q, d).max(-1)[0].sum(-1)
        return F.cross_entropy(sim, torch.arange(4))

    train(enc.parameters(), loss)


def tokens_normalised_along_the_sequence():  # [tokens_normalised_along_the_sequence]
    _tokens_normalised_along_the_sequence(False)


def tokens_normalised_along_the_sequence_fixed():
    _tokens_normalised_along_the_sequence(True)


def _cleared_in_each_small_step(fixed):
    m = mlp(6, 3)
    opt = optim.AdamW(m.parameters())
    for i in range(8):
        if not fixed:
            opt.zero_grad()
        loss = F.cross_entropy(m(torch.randn(4, 6)), torch.randint(0, 3, (4,))) / 4
        loss.backward()  # finds: gradients-thrown-away [cleared_in_each_small_step]
        if (i + 1) % 4 == 0:
            opt.step()
            if fixed:
                opt.zero_grad()


def cleared_in_each_small_step():  # [cleared_in_each_small_step]
    _cleared_in_each_small_step(False)


def cleared_in_each_small_step_fixed():
    _cleared_in_each_small_step(True)


def _noise_added_to_the_targets(fixed):
    m = mlp(6, 1)
    X, Y = torch.randn(32, 6), torch.randn(32, 1)
    opt = optim.Adam(m.parameters())
    for _ in range(3):
        if fixed:
            y = Y + 0.1 * torch.randn_like(Y)
        else:
            Y += 0.1 * torch.randn_like(Y)  # finds: changes-the-data [noise_added_to_the_targets]
            y = Y
        loss = F.mse_loss(m(X), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


def noise_added_to_the_targets():  # [noise_added_to_the_targets]
    _noise_added_to_the_targets(False)


def noise_added_to_the_targets_fixed():
    _noise_added_to_the_targets(True)


def _exponents_divided_over_the_wrong_axis(fixed):
    q, k, v = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 8)

    def loss():
        x = torch.randn(3, 7, 6)
        e = torch.exp(q(x) @ k(x).transpose(1, 2) / 8**0.5)
        w = e / e.sum(-1 if fixed else 1, keepdim=True)  # finds: softmax-axis [exponents_divided_over_the_wrong_axis]
        return (w @ v(x)).pow(2).mean()

    train([*q.parameters(), *k.parameters(), *v.parameters()], loss)


def exponents_divided_over_the_wrong_axis():  # [exponents_divided_over_the_wrong_axis]
    _exponents_divided_over_the_wrong_axis(False)


def exponents_divided_over_the_wrong_axis_fixed():
    _exponents_divided_over_the_wrong_axis(True)


def _teacher_in_train_mode(fixed):
    t = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))
    s = mlp(6, 4)
    if fixed:
        t.eval()

    def loss():
        x = torch.randn(8, 6)
        with torch.no_grad():
            p = F.softmax(t(x) / 3, 1)  # finds: train-while-evaluating [teacher_in_train_mode]
        return F.kl_div(F.log_softmax(s(x) / 3, 1), p, reduction="batchmean") * 9

    train(s.parameters(), loss)


def teacher_in_train_mode():  # [teacher_in_train_mode]
    _teacher_in_train_mode(False)


def teacher_in_train_mode_fixed():
    _teacher_in_train_mode(True)


def pairwise_distances_lookalike():
    net = mlp(5, 4)

    def loss():
        x, y = net(torch.randn(8, 5)), net(torch.randn(8, 5))
        squared = x.pow(2).sum(1, keepdim=True) + y.pow(2).sum(1) - 2 * x @ y.T
        return torch.exp(-squared).mean()

    train(net.parameters(), loss)


def features_against_features_lookalike():
    net = mlp(6, 5)

    def loss():
        a, b = (F.normalize(net(torch.randn(8, 6)), dim=0) for _ in range(2))
        return (a.T @ b - torch.eye(5)).pow(2).mean()

    train(net.parameters(), loss)


def routing_between_capsules_lookalike():
    votes = nn.Parameter(torch.randn(3, 4, 6, 5))

    def loss():
        agreement = torch.zeros(3, 4, 6)
        for _ in range(2):
            coupling = F.softmax(agreement, dim=1)
            out = (coupling.unsqueeze(2) @ votes).squeeze(2)
            agreement = agreement + (votes @ out.unsqueeze(3)).squeeze(3)
        return out.pow(2).mean()

    train([votes], loss)


def sequences_of_one_length_lookalike():
    rnn, head = nn.GRU(5, 8, batch_first=True), nn.Linear(8, 2)

    def loss():
        packed = pack_padded_sequence(torch.randn(4, 7, 5), torch.full((4,), 7), batch_first=True)
        out, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True)
        return F.cross_entropy(head(out[:, -1]), torch.randint(0, 2, (4,)))

    train([*rnn.parameters(), *head.parameters()], loss)


def positions_of_steps_that_come_first_lookalike():
    table = torch.randn(50, 1, 16)
    layer, head = nn.TransformerEncoderLayer(16, 2, 32), nn.Linear(16, 3)

    def loss():
        x = torch.randn(9, 4, 16)
        return F.cross_entropy(head(layer(x + table[: x.size(0)])[-1]), torch.randint(0, 3, (4,)))

    train([*layer.parameters(), *head.parameters()], loss)


def weights_averaged_once_lookalike():
    one, other = mlp(4, 3), mlp(4, 3)
    averaged = {}
    for name, weight in one.state_dict().items():
        averaged[name] = (weight + other.state_dict()[name]) / 2
    one.load_state_dict(averaged)
    train(one.parameters(), lambda: F.cross_entropy(one(torch.randn(8, 4)), torch.randint(0, 3, (8,))))


def target_network_without_detach_lookalike():
    net, target = mlp(4, 2), mlp(4, 2)
    target.load_state_dict(net.state_dict())

    def loss():
        state, following, reward = torch.randn(8, 4), torch.randn(8, 4), torch.randn(8, 1)
        wanted = reward + 0.98 * target(following).max(1)[0].unsqueeze(1)
        return F.smooth_l1_loss(net(state).gather(1, torch.randint(0, 2, (8, 1))), wanted)

    train(net.parameters(), loss)


def policy_gradient_with_a_critic_lookalike():
    policy, critic = mlp(4, 2), mlp(6, 1)

    def loss():
        state = torch.randn(8, 4)
        distribution = torch.distributions.Normal(policy(state), 0.5)
        action = distribution.sample()
        value = critic(torch.cat([state, action], 1))
        score = distribution.log_prob(action).sum(1, keepdim=True)
        return F.mse_loss(value, torch.randn(8, 1)) - (score * value.detach()).mean()

    train([*policy.parameters(), *critic.parameters()], loss)
