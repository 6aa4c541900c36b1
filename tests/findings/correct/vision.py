"""Classifiers, autoencoders and the like, trained the usual ways."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(32, 16), nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def _digits(n=24):
    return TensorDataset(torch.rand(n, 1, 8, 8), torch.randint(0, 10, (n,)))


def mnist_style():
    model = ConvNet()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    train_loader = DataLoader(_digits(), batch_size=8, shuffle=True)
    test_loader = DataLoader(_digits(), batch_size=12)
    for _epoch in range(2):
        model.train()
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
        model.eval()
        test_loss, correct = 0, 0
        with torch.no_grad():
            for data, target in test_loader:
                output = model(data)
                test_loss += F.nll_loss(output, target, reduction="sum").item()
                pred = output.argmax(dim=1, keepdim=True)
                correct += pred.eq(target.view_as(pred)).sum().item()
        scheduler.step()


class Block(nn.Module):
    def __init__(self, c, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(c, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or c != out:
            self.down = nn.Sequential(nn.Conv2d(c, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class TinyResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.layers = nn.Sequential(Block(4, 4), Block(4, 8, 2))
        self.pool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.pool(self.layers(self.stem(x))).flatten(1))


def imagenet_style_accuracy():
    model, criterion = TinyResNet(), nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(2):
        model.train()
        for _ in range(2):
            images, target = torch.rand(6, 3, 8, 8), torch.randint(0, 5, (6,))
            output = model(images)
            loss = criterion(output, target)
            with torch.no_grad():
                _, pred = output.topk(2, 1, True, True)
                correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
                top1 = correct[:1].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / 6)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item(), top1[0].item())
        model.eval()
        with torch.no_grad():
            output = model(torch.rand(6, 3, 8, 8))
            print(criterion(output, torch.randint(0, 5, (6,))).item())


def transfer_frozen_backbone():
    model = TinyResNet()
    for param in model.parameters():
        param.requires_grad = False
    model.fc = nn.Linear(8, 2)
    optimizer = optim.SGD(model.fc.parameters(), lr=0.01, momentum=0.9)
    best = copy.deepcopy(model.state_dict())
    for _ in range(2):
        model.train()
        x, y = torch.rand(6, 3, 8, 8), torch.randint(0, 2, (6,))
        optimizer.zero_grad()
        with torch.set_grad_enabled(True):
            outputs = model(x)
            _, preds = torch.max(outputs, 1)
            loss = F.cross_entropy(outputs, y)
            loss.backward()
            optimizer.step()
        print(loss.item() * x.size(0), torch.sum(preds == y.data).item())
        model.eval()
        with torch.set_grad_enabled(False):
            outputs = model(x)
            _, preds = torch.max(outputs, 1)
            print(torch.sum(preds == y.data).item())
        best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)


def features_under_no_grad():
    backbone, head = TinyResNet(), nn.Linear(5, 2)
    backbone.eval()
    optimizer = optim.Adam(head.parameters())
    for _ in range(3):
        x, y = torch.rand(4, 3, 8, 8), torch.randint(0, 2, (4,))
        with torch.no_grad():
            features = backbone(x)
        loss = F.cross_entropy(head(features), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 16), nn.Linear(16, 3), nn.Linear(16, 3)
        self.fc3, self.fc4 = nn.Linear(3, 16), nn.Linear(16, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def vae():
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        data = torch.rand(8, 1, 8, 8)
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        bce = F.binary_cross_entropy(recon, data.view(-1, 64), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        (bce + kld).backward()
        optimizer.step()
    with torch.no_grad():
        sample = torch.sigmoid(model.fc4(F.relu(model.fc3(torch.randn(4, 3))))).view(4, 1, 8, 8)
        print(sample.mean().item())


class VectorQuantizer(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.codebook = nn.Embedding(n, d)
        self.codebook.weight.data.uniform_(-1 / n, 1 / n)

    def forward(self, z):
        z = z.permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, z.shape[-1])
        d = flat.pow(2).sum(1, keepdim=True) + self.codebook.weight.pow(2).sum(1) - 2 * flat @ self.codebook.weight.t()
        idx = d.argmin(1)
        zq = self.codebook(idx).view(z.shape)
        loss = F.mse_loss(zq.detach(), z) * 0.25 + F.mse_loss(zq, z.detach())
        zq = z + (zq - z).detach()
        return zq.permute(0, 3, 1, 2), loss


def vqvae():
    enc, vq, dec = nn.Conv2d(1, 4, 4, 2, 1), VectorQuantizer(8, 4), nn.ConvTranspose2d(4, 1, 4, 2, 1)
    params = [*enc.parameters(), *vq.parameters(), *dec.parameters()]
    optimizer = optim.AdamW(params, lr=1e-3)
    for _ in range(3):
        x = torch.rand(4, 1, 8, 8)
        zq, vq_loss = vq(enc(x))
        loss = F.mse_loss(dec(zq), x) + vq_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = F.relu(self.d1(x))
        b = F.relu(self.d2(F.max_pool2d(a, 2)))
        return self.out(torch.cat([self.up(b), a], dim=1))


def segmentation_with_dice():
    model = UNet()
    optimizer = optim.RMSprop(model.parameters(), lr=1e-4)
    for _ in range(2):
        x, mask = torch.rand(2, 1, 8, 8), (torch.rand(2, 1, 8, 8) > 0.5).float()
        logits = model(x)
        p = torch.sigmoid(logits)
        dice = 1 - (2 * (p * mask).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
        loss = F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            pred = (p > 0.5).float()
            print((pred == mask).float().mean().item())


def super_resolution():
    model = nn.Sequential(nn.Conv2d(1, 8, 5, 1, 2), nn.ReLU(), nn.Conv2d(8, 4, 3, 1, 1), nn.PixelShuffle(2))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    epoch_loss = 0
    for _ in range(3):
        small, large = torch.rand(2, 1, 4, 4), torch.rand(2, 1, 8, 8)
        optimizer.zero_grad()
        loss = F.mse_loss(model(small), large)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(10 * math.log10(1 / F.mse_loss(model(small), large).item()))


def neural_style():
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3)).eval().requires_grad_(False)

    def gram(y):
        b, ch, h, w = y.size()
        f = y.view(b, ch, w * h)
        return f.bmm(f.transpose(1, 2)) / (ch * h * w)

    content, style = torch.rand(1, 3, 10, 10) * 255, torch.rand(1, 3, 10, 10) * 255
    target_content, target_style = features(content).detach(), gram(features(style)).detach()
    image = content.clone().requires_grad_(True)
    optimizer = optim.LBFGS([image], max_iter=3)

    def closure():
        with torch.no_grad():
            image.clamp_(0, 255)
        optimizer.zero_grad()
        f = features(image)
        loss = F.mse_loss(f, target_content) + 1e3 * F.mse_loss(gram(f), target_style)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


def patch_transformer():
    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 16, 4, 4)
            self.cls = nn.Parameter(torch.zeros(1, 1, 16))
            self.pos = nn.Parameter(torch.randn(1, 5, 16) * 0.02)
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
            return self.head(self.encoder(x)[:, 0])

    model = ViT()
    optimizer = optim.AdamW(model.parameters(), 1e-3)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(3):
        loss = F.cross_entropy(model(torch.rand(4, 3, 8, 8)), torch.randint(0, 4, (4,)), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    model.eval()
    with torch.inference_mode():
        print(model(torch.rand(4, 3, 8, 8)).softmax(-1).argmax(-1).tolist())


def mixup_and_soft_targets():
    model = TinyResNet()
    optimizer = optim.SGD(model.parameters(), 0.1, nesterov=True, momentum=0.9)
    for _ in range(2):
        x, y = torch.rand(8, 3, 8, 8), torch.randint(0, 5, (8,))
        lam, perm = 0.3, torch.randperm(8)
        mixed = lam * x + (1 - lam) * x[perm]
        out = model(mixed)
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[perm])
        soft = F.one_hot(y, 5).float() * lam + F.one_hot(y[perm], 5).float() * (1 - lam)
        loss = loss + F.cross_entropy(out, soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def fgsm_attack():
    model = TinyResNet()
    model.eval()
    correct = 0
    for _ in range(4):
        data, target = torch.rand(1, 3, 8, 8), torch.randint(0, 5, (1,))
        data.requires_grad = True
        output = model(data)
        init_pred = output.max(1, keepdim=True)[1]
        loss = F.cross_entropy(output, target)
        model.zero_grad()
        loss.backward()
        perturbed = torch.clamp(data + 0.1 * data.grad.data.sign(), 0, 1)
        final = model(perturbed).max(1, keepdim=True)[1]
        correct += (final == init_pred).sum().item()


def adversarial_training():
    model = TinyResNet()
    optimizer = optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        x, y = torch.rand(4, 3, 8, 8), torch.randint(0, 5, (4,))
        delta = torch.zeros_like(x, requires_grad=True)
        for _ in range(2):
            loss = F.cross_entropy(model(x + delta), y)
            loss.backward()
            delta.data = (delta + 0.01 * delta.grad.detach().sign()).clamp(-0.03, 0.03)
            delta.grad.zero_()
        optimizer.zero_grad()
        F.cross_entropy(model(x + delta.detach()), y).backward()
        optimizer.step()
