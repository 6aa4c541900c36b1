"""GANs, diffusion, flows: several optimizers, detached samples, targets made on the way."""

import torch
import torch.nn.functional as F
from torch import nn, optim


def _generator():
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Linear(16, 8), nn.Tanh())


def _critic(last=None):
    layers = [nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(16, 1)]
    return nn.Sequential(*layers, *([last] if last else []))


def dcgan():
    netg, netd = _generator(), _critic(nn.Sigmoid())
    criterion = nn.BCELoss()
    opt_d, opt_g = optim.Adam(netd.parameters(), 2e-4), optim.Adam(netg.parameters(), 2e-4)
    for _ in range(3):
        netd.zero_grad()
        real = torch.randn(6, 8)
        label = torch.full((6,), 1.0)
        output = netd(real).view(-1)
        err_real = criterion(output, label)
        err_real.backward()
        fake = netg(torch.randn(6, 4))
        label.fill_(0.0)
        output = netd(fake.detach()).view(-1)
        err_fake = criterion(output, label)
        err_fake.backward()
        opt_d.step()
        netg.zero_grad()
        label.fill_(1.0)
        err_g = criterion(netd(fake).view(-1), label)
        err_g.backward()
        opt_g.step()
        print((err_real + err_fake).item(), err_g.item(), output.mean().item())


def gan_with_logits_and_joint_losses():
    netg, netd = _generator(), _critic()
    adversarial = nn.BCEWithLogitsLoss()
    opt_g, opt_d = optim.Adam(netg.parameters()), optim.Adam(netd.parameters())
    for _ in range(3):
        valid, fake = torch.ones(6, 1), torch.zeros(6, 1)
        opt_g.zero_grad()
        gen = netg(torch.randn(6, 4))
        g_loss = adversarial(netd(gen), valid)
        g_loss.backward()
        opt_g.step()
        opt_d.zero_grad()
        d_loss = (adversarial(netd(torch.randn(6, 8)), valid) + adversarial(netd(gen.detach()), fake)) / 2
        d_loss.backward()
        opt_d.step()


def wgan_gradient_penalty():
    netg, critic = _generator(), nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    opt_g, opt_c = optim.RMSprop(netg.parameters(), 5e-5), optim.RMSprop(critic.parameters(), 5e-5)
    for i in range(4):
        real, noise = torch.randn(6, 8), torch.randn(6, 4)
        with torch.no_grad():
            fake = netg(noise)
        alpha = torch.rand(6, 1)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = critic(mixed)
        grads = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True)[0]
        gp = ((grads.norm(2, dim=1) - 1) ** 2).mean()
        loss_c = critic(fake).mean() - critic(real).mean() + 10 * gp
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        if i % 2 == 1:
            opt_g.zero_grad()
            (-critic(netg(noise)).mean()).backward()
            opt_g.step()


def wgan_weight_clipping():
    netg, critic = _generator(), nn.Linear(8, 1)
    opt_g, opt_c = optim.RMSprop(netg.parameters()), optim.RMSprop(critic.parameters())
    for _ in range(2):
        for _ in range(2):
            opt_c.zero_grad()
            loss = -torch.mean(critic(torch.randn(6, 8))) + torch.mean(critic(netg(torch.randn(6, 4)).detach()))
            loss.backward()
            opt_c.step()
            for p in critic.parameters():
                p.data.clamp_(-0.01, 0.01)
        opt_g.zero_grad()
        (-torch.mean(critic(netg(torch.randn(6, 4))))).backward()
        opt_g.step()


def cyclegan():
    ab, ba, da, db = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1)
    opt_g = optim.Adam([*ab.parameters(), *ba.parameters()], 2e-4)
    opt_d = optim.Adam([*da.parameters(), *db.parameters()], 2e-4)
    for _ in range(2):
        a, b = torch.randn(4, 8), torch.randn(4, 8)
        for net in (da, db):
            net.requires_grad_(False)
        opt_g.zero_grad()
        fake_b, fake_a = ab(a), ba(b)
        loss = F.mse_loss(db(fake_b), torch.ones(4, 1)) + F.mse_loss(da(fake_a), torch.ones(4, 1))
        loss = loss + 10 * (F.l1_loss(ba(fake_b), a) + F.l1_loss(ab(fake_a), b))
        loss.backward()
        opt_g.step()
        for net in (da, db):
            net.requires_grad_(True)
        opt_d.zero_grad()
        for net, real, fake in ((da, a, fake_a), (db, b, fake_b)):
            loss_d = (F.mse_loss(net(real), torch.ones(4, 1)) + F.mse_loss(net(fake.detach()), torch.zeros(4, 1))) * 0.5
            loss_d.backward()
        opt_d.step()


def ddpm():
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time, self.body = nn.Embedding(10, 8), nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 8))

        def forward(self, x, t):
            return self.body(torch.cat([x, self.time(t)], -1))

    model = Denoiser()
    ema = Denoiser()
    ema.load_state_dict(model.state_dict())
    ema.requires_grad_(False)
    betas = torch.linspace(1e-4, 0.02, 10)
    alphas = torch.cumprod(1 - betas, 0)
    optimizer = optim.AdamW(model.parameters(), 1e-3)
    for _ in range(3):
        x, t, noise = torch.randn(6, 8), torch.randint(0, 10, (6,)), torch.randn(6, 8)
        a = alphas[t][:, None]
        loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, e in zip(model.parameters(), ema.parameters()):
                e.mul_(0.99).add_(p, alpha=0.01)
    with torch.no_grad():
        x = torch.randn(4, 8)
        for step in reversed(range(10)):
            t = torch.full((4,), step, dtype=torch.long)
            eps = ema(x, t)
            x = (x - betas[step] / (1 - alphas[step]).sqrt() * eps) / (1 - betas[step]).sqrt()
            if step > 0:
                x = x + betas[step].sqrt() * torch.randn_like(x)


def realnvp():
    nets = nn.ModuleList(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(2))
    prior = torch.distributions.MultivariateNormal(torch.zeros(4), torch.eye(4))
    optimizer = optim.Adam(nets.parameters())
    for _ in range(3):
        z, logdet = torch.randn(8, 4), torch.zeros(8)
        for i, net in enumerate(nets):
            a, b = z.chunk(2, dim=1) if i % 2 == 0 else z.chunk(2, dim=1)[::-1]
            s, t = net(a).chunk(2, dim=1)
            s = torch.tanh(s)
            b = b * s.exp() + t
            logdet = logdet + s.sum(1)
            z = torch.cat([a, b], 1)
        loss = -(prior.log_prob(z) + logdet).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def masked_autoencoder():
    enc, dec = nn.Linear(6, 8), nn.Linear(8, 6)
    token = nn.Parameter(torch.zeros(1, 1, 8))
    optimizer = optim.AdamW([*enc.parameters(), *dec.parameters(), token])
    for _ in range(2):
        x = torch.randn(4, 10, 6)
        order = torch.rand(4, 10).argsort(1)
        keep, restore = order[:, :4], order.argsort(1)
        visible = torch.gather(x, 1, keep.unsqueeze(-1).expand(-1, -1, 6))
        h = enc(visible)
        h = torch.cat([h, token.expand(4, 6, -1)], 1)
        h = torch.gather(h, 1, restore.unsqueeze(-1).expand(-1, -1, 8))
        mask = torch.ones(4, 10)
        mask[:, :4] = 0
        mask = torch.gather(mask, 1, restore)
        loss = ((dec(h) - x) ** 2).mean(-1)
        loss = (loss * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
