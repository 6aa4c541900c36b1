"""Tracy NN's blocks, exactly."""

from __future__ import annotations

from tests.handmade import LINEAR, HandmadeTrace, Maker, tensor
from tests.views.shown import edges
from torchglass.views.live.tracy import TracyLines
from torchglass.views.text.style import Page


def printed(trace: HandmadeTrace, page: Page | None = None) -> list[str]:
    lines = TracyLines("MHA", page)
    body = [line for event, edge in edges(trace.events()) for line in lines.feed(event, edge)]
    return [*lines.start(), *body, *lines.finish()]


def traced() -> Maker:
    make = Maker(root="MHA")
    make.layer("MHA", None, "", "mha(x)", (10, 20, 6), args="f32[10, 20, 6]", result="f32[10, 20, 6]")
    return make


WIDE = {"args": "f32[10, 20, 6]", "result": "f32[10, 20, 6]"}


def test_the_documents_sample() -> None:
    make = traced()
    layer = make.layer("Linear", 0, "query_weights", "self.query_weights(x)", (10, 20, 6), detail=LINEAR, **WIDE)
    make.add("function", "F.linear", layer, "self.query_weights(x)", direct=False, outputs=[(10, 20, 6)])
    make.add("function", "Tensor.view", 0, "x.view(b, n, h, d)", inputs=[(10, 20, 6)], outputs=[(10, 20, 3, 2)],
             args="f32[10, 20, 6], 10, 20, 3, 2", result="f32[10, 20, 3, 2]", owner="MHA.split_heads")  # fmt: skip
    make.add("function", "Tensor.matmul", 0, "w @ v", operator="@", inputs=[(10, 3, 20, 20), (10, 3, 20, 2)],
             outputs=[(10, 3, 20, 2)], args="f32[10, 3, 20, 20], f32[10, 3, 20, 2]", result="f32[10, 3, 20, 2]",
             owner="MHA.calculate_attention")  # fmt: skip
    rule = "  " + "─" * 80
    assert (
        "\n".join(printed(HandmadeTrace(make.made)))
        == f"""\
{rule}
  ● TRACING MHA STARTED
  │
  ● query_weights (Linear) (in_features: 6, out_features: 6)
  ├─ Input: Tensor [10, 20, 6] @ cpu
  └─ Output: Tensor [10, 20, 6] @ cpu
  │
  ● Tensor.view(10, 20, 3, 2) @ [MHA.split_heads]
  ├─ Input: Tensor [10, 20, 6] @ cpu
  └─ Output: Tensor [10, 20, 3, 2] @ cpu
  │
  ● Tensor.@ @ [MHA.calculate_attention]
  ├─ Left: Tensor [10, 3, 20, 20] @ cpu
  ├─ Right: Tensor [10, 3, 20, 2] @ cpu
  └─ Output: Tensor [10, 3, 20, 2] @ cpu
  │
  ● TRACING MHA COMPLETE
{rule}"""
    )


def body(make: Maker) -> str:
    return "\n".join(printed(HandmadeTrace(make.made))[3:-2])


def test_a_container_opens_before_what_is_in_it() -> None:
    make = traced()
    block = make.layer("Block", 0, "blocks.0", "block(x)", (2, 3), args="f32[2, 3]", result="f32[2, 3]")
    make.layer("Dropout", block, "blocks.0.drop", "self.drop(x)", (2, 3), args="f32[2, 3]", result="f32[2, 3]",
               detail="p=0.1, inplace=False")  # fmt: skip
    assert (
        body(make)
        == """\
  ● blocks.0 (Block)
  ├─ Input: Tensor [2, 3] @ cpu
  │
    ● drop (Dropout) (p: 0.1)
    ├─ Input: Tensor [2, 3] @ cpu
    └─ Output: Tensor [2, 3] @ cpu
    │
  └─ Output: Tensor [2, 3] @ cpu
  │"""
    )


def test_what_torch_does_before_a_container_shows_itself_is_not_lost() -> None:
    make = traced()
    layer = make.layer("EncoderLayer", 0, "enc", "self.enc(x)", (2,), args="f32[2]", result="f32[2]")
    make.add("function", "Tensor.add", layer, "self.enc(x)", direct=False, args="f32[2], 1", result="f32[2]",
             inputs=[(2,)], outputs=[(2,)])  # fmt: skip
    make.layer("ReLU", layer, "enc.act", "self.enc(x)", (2,), direct=False, args="f32[2]", result="f32[2]")
    heads = [line.strip() for line in body(make).splitlines() if "●" in line]
    assert heads == ["● enc (EncoderLayer)", "● Tensor.add(1)", "● act (ReLU)"]


def test_operators_functions_and_settings() -> None:
    make = traced()
    make.add("function", "Tensor.__rsub__", 0, "1 - x", operator="-", inputs=[(2,)], outputs=[(2,)],
             args="f32[2], 1", result="f32[2]", owner="MHA.forward")  # fmt: skip
    make.add("function", "cat", 0, "torch.cat([x, x], dim=1)", inputs=[(2,), (2,)], outputs=[(4,)],
             args="[f32[2], f32[2]], dim=1", result="f32[4]", owner="MHA.forward")  # fmt: skip
    make.add("function", "F.softmax", 0, "F.softmax(x, -1)", inputs=[(2,)], outputs=[(2,)],
             args="f32[2], dim=-1, _stacklevel=3, dtype=None", result="f32[2]")  # fmt: skip
    make.layer("Conv2d", 0, "conv", "self.conv(x)", (2,), args="f32[2]", result="f32[2]",
               detail="3, 64, kernel_size=(7, 7), stride=(2, 2), bias=False")  # fmt: skip
    make.layer("BatchNorm2d", 0, "bn", "self.bn(x)", (2,), args="f32[2]", result="f32[2]", detail="64, eps=1e-05")
    text = body(make)
    assert "● Tensor.__rsub__ @ [MHA.forward]\n  ├─ Left: int\n  ├─ Right: Tensor [2] @ cpu\n" in text
    assert "● torch.cat(dim=1) @ [MHA.forward]\n  ├─ Input[0]: Tensor [2] @ cpu\n  ├─ Input[1]" in text
    assert "● F.softmax(dim=-1)\n  ├─ Input: Tensor [2] @ cpu\n" in text
    assert "● conv (Conv2d) (in_channels: 3, out_channels: 64, kernel_size: (7, 7))\n" in text
    assert "● bn (BatchNorm2d) (num_features: 64)\n" in text


def test_values_element_by_element() -> None:
    make = traced()
    make.layer("Attn", 0, "attn", "self.attn(x)", (2,), inputs=[(2,), (3,)], outputs=[(2,), (4,)],
               args="f32[2], mask=None, cache=<Cache>, kv=[f32[3], 7]",
               result="Output(logits=f32[2], more={'a': f32[4], 'b': None})")  # fmt: skip
    assert (
        body(make)
        == """\
  ● attn (Attn)
  ├─ Input[0]: Tensor [2] @ cpu
  ├─ Input[mask]: None
  ├─ Input[cache]: Cache
  ├─ Input[kv[0]]: Tensor [3] @ cpu
  ├─ Input[kv[1]]: int
  ├─ Output[logits]: Tensor [2] @ cpu
  ├─ Output[more.a]: Tensor [4] @ cpu
  └─ Output[more.b]: None
  │"""
    )


def test_the_failing_step_is_printed_with_its_error() -> None:
    make = traced()
    make.made[0] = make.made[0]._replace(error="ValueError: no", outputs=(), result="")
    make.layer("Linear", 0, "fc", "self.fc(x)", (2,), args="f32[2]", outputs=[], error="ValueError: no")
    assert (
        body(make)
        == """\
  ● fc (Linear)
  ├─ Input: Tensor [2] @ cpu
  └─ Error: ValueError: no
  │"""
    )


def test_an_error_of_the_root_itself_is_printed() -> None:
    make = traced()
    make.made[0] = make.made[0]._replace(error="ValueError: no", outputs=(), result="")
    assert body(make) == "  ● MHA (MHA)\n  └─ Error: ValueError: no\n  │"


def test_hostile_text_is_escaped() -> None:
    make = Maker(root="\x1b[31m")
    bad = "\x1b[31m\r\n\u202e"
    make.layer(bad, None, "", "mha(x)", (2,), args=bad, result=bad)
    make.layer(bad, 0, bad, "x", (2,), args=f"f32[2], {bad}", result=bad, detail=f"p={bad}", error=f"E: {bad}")
    make.add("function", bad, 0, "x", inputs=[tensor(None, bad, device=bad)], args=bad, result=bad, owner=bad)
    lines = TracyLines(bad)
    for line in [*lines.start(), *(each for pair in edges(make.made) for each in lines.feed(*pair)), *lines.finish()]:
        assert line.isprintable(), line
