"""Memory that nobody wrote is used as numbers: `torch.empty` holds whatever was there before.

Often these are zeros, or numbers of an earlier tensor, so that a program works once and not the next time.

    total = torch.empty(8)                               # wrong: torch.zeros(8)
    total += model(x)

Buffers that are filled afterwards (`out[i] = …`, `out.copy_(…)`, `torch.mul(a, b, out=out)`) are fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

MAKERS = ("empty", "empty_like", "new_empty", "empty_strided")
READS = frozenset(
    "add __add__ __radd__ __iadd__ add_ sub __sub__ __isub__ sub_ mul __mul__ __rmul__ __imul__ mul_ div __truediv__ "
    "matmul __matmul__ mm bmm linear sum mean softmax relu sigmoid tanh exp log sqrt lstm gru rnn_tanh conv1d conv2d "
    "mse_loss cross_entropy l1_loss maximum minimum".split()
)
VIEWS = frozenset(
    "view reshape transpose permute unsqueeze squeeze expand __getitem__ t T requires_grad_".split()
)


def find(facts: Facts) -> Iterator[Suspicion]:
    flow = facts.program.flow
    for name in MAKERS:
        for events in facts.by_name.get(name, {}).values():
            for event in events:
                if not facts.is_written(event) or not facts.gives[event]:
                    continue
                value = facts.gives[event][0]
                if facts.numel(value) == 0 or _is_shared(facts, value):
                    continue
                written = flow.written_after(value)
                first_write = min((write.event for write in written), default=len(flow))
                for _, user in facts.uses(value, VIEWS):
                    is_first_write = user == first_write and not _reads_what_it_writes(
                        facts.name(user)
                    )
                    if user <= first_write and not is_first_write and facts.name(user) in READS:
                        yield Suspicion(
                            severity=BUG,
                            event=event,
                            text=f"{facts.code(event)} is read before anything was written into it",
                            evidence=(seen_at(facts, f"read by {facts.code(user)}", user),),
                            fix="use torch.zeros, or fill it first",
                        )
                        break


def _reads_what_it_writes(name: str) -> bool:
    """Return whether a function works in place; `torch.mul(a, b, out=c)` does not read c."""
    return name.endswith("_") and (not name.endswith("__") or name.startswith("__i"))


def _is_shared(facts: Facts, value: int) -> bool:
    """Return whether somebody may write into the memory unseen: numpy, or another process."""
    names = {facts.name(user) for _, user in facts.uses(value, VIEWS)}
    return bool(names & {"numpy", "share_memory_", "data_ptr", "__array__", "data"})
