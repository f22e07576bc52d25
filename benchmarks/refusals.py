"""What of the things that may not be saved is refused, and what that should be saved is refused with them?

``data/refusals.json`` has twenty sentences of each kind that may not be saved (what code shows, version history,
debugging recipes, what the instruction file says, passing details of a task), forty that must be savable and twelve
with a password, in English, German and Chinese, two in other languages; the author had not read the rules. The memories
of the sets for prompt recall, nearly all by strangers, must be savable too. The second set (twenty
and twenty look-alikes) is by somebody who had read the guide only.

Run: python benchmarks/refusals.py [--second] [--sentences] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from reverie.errors import InputError
from reverie.memories.rules.secrets import refuse_secrets
from reverie.memories.rules.taxonomy import refusal

DATA = Path(__file__).resolve().parent / "data"
SAVABLE = ("keep", "memories")


def reason_for(text: str, kind: str, instructions: str) -> str:
    """Return why a memory is refused; empty if it is saved."""
    try:
        refuse_secrets(text, "the memory")
    except InputError as error:
        return str(error)
    return refusal(text, kind, instructions=[instructions])


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", action="store_true", help="Print each that is judged wrongly.")
    parser.add_argument("--second", action="store_true", help="Measure the second set.")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    data = json.loads((DATA / f"{'refusals_second' if given.second else 'refusals'}.json").read_text("utf-8"))
    memories = [
        ("project", one) if isinstance(one, str) else (one["type"], one["body"])
        for path in sorted(DATA.glob("prompt_recall*.json"))
        for one in json.loads(path.read_text("utf-8"))["memories"]
    ]
    counts: dict[str, tuple[int, int]] = {}
    for name, rows in {**data["kinds"], "memories": memories}.items():
        reasons = [(text, reason_for(text, kind, data["instructions"])) for kind, text in rows]
        counts[name] = sum(bool(why) for _, why in reasons), len(rows)
        for text, why in reasons if given.sentences else ():
            if bool(why) == (name in SAVABLE):
                print(f"{name}: {text} {f'({why})' if why else ''}")
    print(
        json.dumps(counts) if given.as_json else "\n".join(f"{k}: {n} of {m} refused" for k, (n, m) in counts.items())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
