"""Write docs/findings.md: what each finding means, and how often it is right on the programs of tests/findings/.

python scripts/findings_page.py
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.findings import corpus  # noqa: E402 (its folder is not installed)
from torchglass.answers.finding import BUG, HINT, LIKELY  # noqa: E402
from torchglass.answers.findings.registry import DETECTORS, explanation, name_of  # noqa: E402

PAGE = ROOT / "docs" / "findings.md"
HEAD = """\
# Findings

A finding is something that looks wrong in your program. `torchglass run train.py` ends with the most certain ones,
`torchglass check train.trace` prints them with evidence and exits with 1 if there is a bug, and `trace.findings()`
returns them as data.

There are three severities: a *bug* cannot be intended, a *likely* problem seldom is, and a *hint* is true but seldom
worth a change (`--all` shows hints). To silence a finding, write `# torchglass: ignore[NAME]` at its line, or use
`trace.findings(ignore=["NAME"])`, `torchglass check --ignore NAME`, or pyproject.toml:

    [tool.torchglass]
    ignore = ["NAME"]

Findings are computed after the run, from what is recorded by default. They do not look into compiled regions and child
processes. If a program failed or was killed, findings that depend on its missing part are left out, and `check` says
so. If only a part of a long run was kept, it is judged by that part, provided that it has 20 optimizer steps.

`python scripts/findings_page.py` writes this page.

"""

MEASURED = """\
Five sets of bugs from public issues and forums measured that. No detector had been made for them:

| set | bugs | found when first tried | found after learning from them |
|---|---|---|---|
| first | 51 | 29 (a prototype) | |
| second (planted/reported.py) | 37 | 9, and 2 under another name or as a hint | 30 |
| third (in part: planted/found_later.py) | 65 | 31, and 5 under another name or at another line; \
one false *likely* on the 65 fixed programs | 59, and 2 under another name |
| fourth (in part: planted/everyday.py) | 83 | 38, and 8 under another name or at another line (37 and 6 without \
statistics); one false *likely* on the 83 fixed programs, one on 42 other correct ones | 65, and 6 under another name \
or at another line; nothing on the correct programs |
| fifth (in part: planted/fifth.py) | 80 | 37, and 4 at another line (36 and 4 without statistics); nothing on the 80 \
fixed programs | 62, and 5 at another line (58 and 5 without statistics); nothing on the fixed programs |

So expect torchglass to find about every second bug. The fourth set is 83 ordinary training scripts, each of a whole \
model, 20 or more steps and mostly an evaluation. What it still misses is mostly what only the author can know: a \
loss with the wrong sign, a learning rate that decays too early, an average over batches of different sizes.

Before the third set, the detectors ran on 130 programs from 24 public repositories, with made-up data: \
pytorch/examples, GANs, vision transformers, VAEs, diffusion, flows, reinforcement learning, graph networks, \
language models. They reported 7 bugs and 4 likely problems. 6 bugs and 2 likely problems were real: softmax before \
cross-entropy in three GANs, a loss that is overwritten, parameters without an optimizer. The false alarms were one \
bug (a broadcast whose average came out right; now *likely*) and two likely problems (a target network without \
`detach()`; no longer reported).

After the fifth set they ran with statistics on 237 more programs, most of them models and losses of 43 public \
repositories and packages: transformers, timm, torchvision, peft, diffusers, annotated papers, CleanRL, contrastive \
and adversarial losses, distillation, adapters, meta-learning, graph and recurrent networks. Eight programs had false \
alarms: five for the shift of rows in relative attention, the others for the first steps of RAdam, a misspelled name \
on a plain tensor, and an evaluation that leaves its loss alone. These are gone. What they still report there is real: \
a divergence with the wrong sign, losses that overflow or are NaN, and a broadcast \
whose average comes out right.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole text."""
    return HEAD + "\n".join([*_table(), "", *_explanations()]) + "\n"


def _table() -> Iterator[str]:
    planted, correct = corpus.planted(), corpus.correct()
    bugs = [each for each in planted if each.expected]
    twins = [each for each in planted if not each.expected]
    wanted = Counter(name for each in bugs for name, _ in each.expected)
    found, missed, other = Counter[str](), Counter[str](), Counter[str]()
    for each in bugs:
        places = corpus.places(corpus.loud(corpus.findings_of(each)))
        found.update(name for name, _ in places & each.expected)
        missed.update(name for name, _ in each.expected - places)
        other.update(name for name, _ in places - each.expected)
    alarms: dict[str, Counter[tuple[str, str]]] = {}
    for kind, programs in (("twins", twins), ("correct", correct)):
        alarms[kind] = Counter(
            (finding.kind, finding.severity) for each in programs for finding in corpus.findings_of(each)
        )
    yield "## How often they are right"
    yield ""
    yield (
        f"{len(bugs)} programs have planted bugs, {len(twins)} are fixed twins and look-alikes, and {len(correct)} are "
        "correct programs written in the style of well-known repositories (tests/findings/). *Found* counts findings "
        "with the right name at the marked line. Detectors were developed on these programs. So the table shows that "
        "they work, but not how many bugs of other people they find."
    )
    yield ""
    yield MEASURED
    yield "| finding | planted | found | elsewhere | false: bug | false: likely | hints on correct programs |"
    yield "|---|---|---|---|---|---|---|"
    for name in sorted(map(name_of, DETECTORS)):
        numbers = [wanted[name], found[name], other[name]]
        both = alarms["twins"] + alarms["correct"]
        numbers += [both[name, severity] for severity in (BUG, LIKELY, HINT)]
        yield f"| [{name}](#{name}) | {' | '.join(map(str, numbers))} |"
    total = [sum(each.values()) for each in (wanted, found, other)]
    total += [
        sum(count for (_, which), count in (alarms["twins"] + alarms["correct"]).items() if which == severity)
        for severity in (BUG, LIKELY, HINT)
    ]
    yield f"| **all** | {' | '.join(map(str, total))} |"


def _explanations() -> Iterator[str]:
    for detector in sorted(DETECTORS, key=name_of):
        yield f"## {name_of(detector)}"
        yield explanation(detector)
        yield ""


if __name__ == "__main__":
    main()
