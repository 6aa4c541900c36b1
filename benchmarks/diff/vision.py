"""A vision transformer and a U-Net for diffusion: modules against functions."""

import math

import torch
import torch.nn.functional as F
from torch import nn

D, HEADS, DEPTH, PATCH, SIZE, CLASSES = 32, 4, 2, 4, 16, 11
GRID = SIZE // PATCH


def images() -> torch.Tensor:
    torch.manual_seed(5)
    return torch.rand(2, 3, SIZE, SIZE)


# ---------------------------------------------------------------- vision transformer


class ViTLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(D, eps=1e-6)
        self.attn = nn.MultiheadAttention(D, HEADS, batch_first=True)
        self.ls1 = nn.Parameter(torch.rand(D))
        self.norm2 = nn.LayerNorm(D, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.ls2 = nn.Parameter(torch.rand(D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.ls1 * self.attn(y, y, y, need_weights=False)[0]
        return x + self.ls2 * self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.register_buffer("mean", torch.tensor([0.48, 0.46, 0.41]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.27, 0.26, 0.28]).view(1, 3, 1, 1))
        self.patch_embed = nn.Conv2d(3, D, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.randn(1, 1, D))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + 9, D))
        self.blocks = nn.ModuleList([ViTLayer() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(D, eps=1e-6)
        self.head = nn.Linear(D, CLASSES)
        for name, value in self.named_parameters():
            if name.endswith(("norm1.weight", "norm2.weight", "norm.weight")):
                nn.init.normal_(value, 1, 0.2)
            elif name.endswith("bias"):
                nn.init.normal_(value, 0, 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x - self.mean) / self.std
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        grid = self.pos_embed[:, 1:].reshape(1, 3, 3, D).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(GRID, GRID), mode="bicubic", align_corners=False)
        pos = torch.cat((self.pos_embed[:, :1], grid.permute(0, 2, 3, 1).reshape(1, -1, D)), dim=1)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class ViTPort:
    def __init__(self, wrong: str, dtype: torch.dtype = torch.float32) -> None:
        self.wrong = wrong
        self.w = {name: value.detach().clone() for name, value in ViT().state_dict().items()}
        if wrong == "patch weight transposed":
            self.w["patch_embed.weight"] = self.w["patch_embed.weight"].transpose(2, 3).contiguous()
        if wrong == "layer scale not loaded":
            self.w["blocks.1.ls1"] = torch.full_like(self.w["blocks.1.ls1"], 1e-1)
        self.w = {name: value.to(dtype) for name, value in self.w.items()}

    def __call__(self, img: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        if wrong == "image not normalised":
            z = img
        elif wrong == "mean and std exchanged":
            z = (img - w["std"]) / w["mean"]  # wrong: mean and std exchanged
        elif wrong == "colours reversed":
            z = (img.flip(1) - w["mean"]) / w["std"]  # wrong: colours reversed
        else:
            z = (img - w["mean"]) / w["std"]
        b = z.shape[0]
        t = z.reshape(b, 3, GRID, PATCH, GRID, PATCH)
        if wrong == "patches in columns":
            t = t.permute(0, 4, 2, 1, 3, 5)  # wrong: patches in columns
        elif wrong == "pixels transposed":
            t = t.permute(0, 2, 4, 1, 5, 3)  # wrong: pixels transposed
        else:
            t = t.permute(0, 2, 4, 1, 3, 5)
        t = t.reshape(b, GRID * GRID, -1)
        t = F.linear(
            t, w["patch_embed.weight"].flatten(1), w["patch_embed.bias"]
        )  # wrong: image not normalised, patch weight transposed, pixels transposed, patches in columns
        p = w["pos_embed"][0]
        mode, align = ("bilinear", False) if wrong == "bilinear positions" else ("bicubic", wrong == "align corners")
        g = F.interpolate(
            p[1:].T.reshape(1, D, 3, 3), size=GRID, mode=mode, align_corners=align
        )  # wrong: bilinear positions, align corners
        g = g[0].flatten(1).T
        if wrong == "class token last":
            h = torch.cat([t + g, (w["cls_token"] + p[:1]).expand(b, 1, D)], 1)  # wrong: class token last
        elif wrong == "no position for the class token":
            h = torch.cat([w["cls_token"].expand(b, 1, D), t + g], 1)  # wrong: no position for the class token
        else:
            h = torch.cat([(w["cls_token"] + p[:1]).expand(b, 1, D), t + g], 1)
        for i in range(DEPTH):
            h = self.layer(h, f"blocks.{i}.")
        if wrong == "mean pooling":
            c = F.layer_norm(h, (D,), w["norm.weight"], w["norm.bias"], 1e-6).mean(1)  # wrong: mean pooling
        else:
            c = F.layer_norm(h[:, 0], (D,), w["norm.weight"], w["norm.bias"], 1e-6)  # wrong: class token last
        return F.linear(c, w["head.weight"], w["head.bias"])  # wrong: mean pooling

    def layer(self, h: torch.Tensor, at: str) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        n1 = F.layer_norm(h, (D,), w[at + "norm1.weight"], w[at + "norm1.bias"], 1e-6)
        a = F.linear(n1, w[at + "attn.in_proj_weight"], w[at + "attn.in_proj_bias"])
        if wrong == "heads interleaved":
            q, k, v = a.unflatten(-1, (D // HEADS, HEADS, 3)).permute(4, 0, 3, 1, 2)  # wrong: heads interleaved
        else:
            q, k, v = a.unflatten(-1, (3, HEADS, D // HEADS)).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) / math.sqrt(D // HEADS)
        o = (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
        o = F.linear(o, w[at + "attn.out_proj.weight"], w[at + "attn.out_proj.bias"])
        if wrong == "layer scale missing" and "1" in at:
            h = h + o  # wrong: layer scale missing
        else:
            h = h + o * w[at + "ls1"]  # wrong: layer scale not loaded
        n2 = F.layer_norm(h, (D,), w[at + "norm2.weight"], w[at + "norm2.bias"], 1e-6)
        u = F.linear(n2, w[at + "mlp.0.weight"], w[at + "mlp.0.bias"])
        u = (
            u * torch.sigmoid(1.702 * u) if wrong == "quick gelu" else 0.5 * u * (1 + torch.erf(u / 2**0.5))
        )  # wrong: quick gelu
        return h + F.linear(u, w[at + "mlp.2.weight"], w[at + "mlp.2.bias"]) * w[at + "ls2"]  # wrong: quick gelu


VIT_PARAMETERS = {"patch weight transposed": "patch_embed.weight", "layer scale not loaded": "ls1"}

# ---------------------------------------------------------------- U-Net

C, TIME = 16, 24


class ResBlock(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(4, inner, eps=1e-5)
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.time_emb_proj = nn.Linear(TIME, outer)
        self.norm2 = nn.GroupNorm(4, outer, eps=1e-5)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.shortcut = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()
        self.nonlinearity = nn.SiLU()

    def forward(self, x: torch.Tensor, temb: torch.Tensor) -> torch.Tensor:
        h = self.conv1(self.nonlinearity(self.norm1(x)))
        h = h + self.time_emb_proj(self.nonlinearity(temb))[:, :, None, None]
        return self.conv2(self.nonlinearity(self.norm2(h))) + self.shortcut(x)  # wrong: shortcut missing


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.conv_in = nn.Conv2d(3, C, 3, padding=1)
        self.linear_1, self.linear_2 = nn.Linear(C, TIME), nn.Linear(TIME, TIME)
        self.down1, self.downsample = ResBlock(C, C), nn.Conv2d(C, 2 * C, 3, stride=2, padding=1)
        self.mid, self.bn = ResBlock(2 * C, 2 * C), nn.BatchNorm2d(2 * C)
        self.up_conv = nn.Conv2d(2 * C, C, 3, padding=1)
        self.up1 = ResBlock(2 * C, C)
        self.out_norm, self.conv_out = nn.GroupNorm(4, C), nn.Conv2d(C, 3, 3, padding=1)
        nn.init.normal_(self.bn.running_mean, 0, 0.3)
        nn.init.uniform_(self.bn.running_var, 0.5, 2.0)
        for name, value in self.named_parameters():
            if "norm" in name and name.endswith("weight"):
                nn.init.normal_(value, 1, 0.2)
            elif name.endswith("bias"):
                nn.init.normal_(value, 0, 0.1)

    def forward(self, x: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        half = C // 2
        exponent = -math.log(10000) * torch.arange(half, dtype=torch.float32) / half
        emb = timesteps[:, None].float() * torch.exp(exponent)[None, :]
        emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1).to(x.dtype)
        emb = self.linear_2(F.silu(self.linear_1(emb)))
        x = self.conv_in(x)
        skip = x = self.down1(x, emb)
        x = self.bn(self.mid(self.downsample(x), emb))
        x = self.up_conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        x = self.up1(torch.cat([x, skip], dim=1), emb)
        return self.conv_out(F.silu(self.out_norm(x)))


def timesteps() -> torch.Tensor:
    return torch.tensor([7, 411])


class UNetPort:
    def __init__(self, wrong: str, dtype: torch.dtype = torch.float32) -> None:
        self.wrong = wrong
        self.p = {name: value.detach().clone() for name, value in UNet().state_dict().items()}
        if wrong == "kernel transposed":
            self.p["mid.conv1.weight"] = self.p["mid.conv1.weight"].transpose(0, 1).contiguous()
        if wrong == "kernel flipped":
            self.p["up_conv.weight"] = self.p["up_conv.weight"].flip(2, 3).contiguous()
        self.p = {name: value.to(dtype) if value.is_floating_point() else value for name, value in self.p.items()}

    def conv(self, x: torch.Tensor, name: str, stride: int = 1, pad: int = 1) -> torch.Tensor:
        return F.conv2d(
            x, self.p[f"{name}.weight"], self.p[f"{name}.bias"], stride, pad
        )  # wrong: kernel transposed, kernel flipped

    def gn(self, x: torch.Tensor, name: str) -> torch.Tensor:
        g = 8 if self.wrong == "groups of the norm" else 4
        if self.wrong == "+norm by hand":
            n = x.unflatten(1, (g, -1))
            n = (n - n.mean((2, 3, 4), keepdim=True)) / (n.var((2, 3, 4), correction=0, keepdim=True) + 1e-5).sqrt()
            return n.flatten(1, 2) * self.p[f"{name}.weight"][:, None, None] + self.p[f"{name}.bias"][:, None, None]
        return F.group_norm(
            x, g, self.p[f"{name}.weight"], self.p[f"{name}.bias"], 1e-2 if self.wrong == "norm eps" else 1e-5
        )  # wrong: groups of the norm, norm eps

    def res(self, x: torch.Tensor, t: torch.Tensor, at: str) -> torch.Tensor:
        h = self.conv(F.silu(self.gn(x, f"{at}.norm1")), f"{at}.conv1")
        if self.wrong == "time without silu":
            s = F.linear(
                t, self.p[f"{at}.time_emb_proj.weight"], self.p[f"{at}.time_emb_proj.bias"]
            )  # wrong: time without silu
        else:
            s = F.linear(F.silu(t), self.p[f"{at}.time_emb_proj.weight"], self.p[f"{at}.time_emb_proj.bias"])
        if self.wrong == "time scales" and at == "mid":
            h = h * (1 + s[..., None, None])  # wrong: time scales
        else:
            h = h + s[..., None, None]
        h = self.conv(F.silu(self.gn(h, f"{at}.norm2")), f"{at}.conv2")
        short = self.conv(x, f"{at}.shortcut", pad=0) if f"{at}.shortcut.weight" in self.p else x
        if self.wrong == "shortcut missing" and at == "down1":
            return h  # wrong: shortcut missing
        return short + h  # wrong: shortcut missing

    def __call__(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        wrong, p = self.wrong, self.p
        half = C // 2
        if wrong == "frequencies off":
            f = torch.exp(torch.linspace(0, -math.log(10000), half))  # wrong: frequencies off
        else:
            f = 10000.0 ** (-torch.arange(half) / half)
        a = torch.outer(t.float(), f)
        e = torch.cat(
            [a.cos(), a.sin()] if wrong == "sine and cosine exchanged" else [a.sin(), a.cos()], 1
        )  # wrong: sine and cosine exchanged
        e = e.to(x.dtype)
        e = F.linear(e, p["linear_1.weight"], p["linear_1.bias"])  # wrong: sine and cosine exchanged
        e = F.linear(e * e.sigmoid(), p["linear_2.weight"], p["linear_2.bias"])
        h0 = self.res(self.conv(x, "conv_in"), e, "down1")
        if wrong == "padding of the stride":
            h = F.conv2d(
                F.pad(h0, (0, 1, 0, 1)), p["downsample.weight"], p["downsample.bias"], 2
            )  # wrong: padding of the stride
        else:
            h = self.conv(h0, "downsample", stride=2)
        h = self.res(h, e, "mid")
        train = wrong == "batch norm trains"
        mean, var = p["bn.running_mean"].clone(), p["bn.running_var"].clone()
        h = F.batch_norm(h, mean, var, p["bn.weight"], p["bn.bias"], train)  # wrong: batch norm trains
        if wrong == "upsampled bilinearly":
            h = F.interpolate(h, scale_factor=2, mode="bilinear")  # wrong: upsampled bilinearly
        else:
            h = h.repeat_interleave(2, 2).repeat_interleave(2, 3)
        h = self.conv(h, "up_conv")
        if wrong == "skip in front":
            h = torch.cat([h0, h], 1)  # wrong: skip in front
        elif wrong == "wrong skip":
            h = torch.cat([h, self.conv(x, "conv_in")], 1)  # wrong: wrong skip
        else:
            h = torch.cat([h, h0], 1)
        h = self.res(h, e, "up1")
        return self.conv(F.silu(self.gn(h, "out_norm")), "conv_out")


UNET_PARAMETERS = {"kernel transposed": "mid.conv1.weight", "kernel flipped": "up_conv.weight"}
