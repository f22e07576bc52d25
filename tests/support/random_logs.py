"""Random session logs: parallel tools, interrupts, crashes, images, thinking, cuts, damage. Seeded and reproducible."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from pictures import image_block, png
from reverie.conversation.boundary import CLEARS
from reverie.conversation.decisions import (
    CacheEdits,
    Cause,
    ClearingBoundaryMoved,
    Collapsed,
    Compacted,
    CompactionUndone,
    Decision,
    Image,
    ImagesDropped,
    InstructionsAttached,
    MessageQueued,
    PrefixRendered,
    Replacement,
    ResultOffloaded,
    ResultsCleared,
    ResultsClearedByProvider,
    ResultsRestored,
    ResultStubbed,
    Snipped,
    body_of,
)
from reverie.conversation.entries import ASSISTANT, ATTACHMENT, DECISION, META, SYSTEM, USER, Entry, iso
from reverie.model_facts import facts_of, known_facts

__all__ = ["random_log"]

_TEXTS: Final = ("hello", "", " \n", "fix the bug", "naïve — 漢字", "x" * 300, '{"a": 1}', "def f():\n    return 1\n")
_TOOLS: Final = ("Read", "Bash", "Grep", "mcp__x__y")
_PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_ODD_IMAGES: Final = (
    ("", "image/tiff"),
    (_PIXEL, "image/webp"),
    (png(2500, 1), "image/png"),
    (png(1, 9000), "image/png"),
    ("no base64", "image/png"),
    (b"no image", "image/gif"),
)
_CAUSE: Final = Cause("test", "random")
_SIGNED: Final = {"type": "compaction", "content": "A summary.", "signature": "signature"}
_OF_PROVIDER: Final[tuple[dict[str, Any], ...]] = (
    _SIGNED,
    {"type": "compaction", "content": "A summary.", "citations": None},
    {"type": "compaction", "content": None},
    {"type": "compaction", "content": "", "signature": 7},
    {"type": "mcp_tool_listing", "mcp_server_name": "x", "tools": []},
    {"type": "mcp_tool_listing", "tools": 1},
    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
)
_MODELS: Final = tuple(facts.match[0].replace("*", "") for facts in known_facts())


def random_log(rng: Random, *, entries: int = 24, disorder: float = 0.25) -> list[Entry]:
    """Return a log of about so many entries; ``disorder`` is the share of things that should not happen."""
    return _Author(rng, disorder).written(rng.randrange(1, entries + 1))


class _Author:
    def __init__(self, rng: Random, disorder: float) -> None:
        self.rng = rng
        self.disorder = disorder
        self.log: list[Entry] = []
        self.open: list[str] = []
        self.called: list[str] = []
        self.clock = 1_700_000_000.0
        self.serial = 0
        self.message_id = "msg_0"

    def written(self, count: int) -> list[Entry]:
        if self.rng.random() < 0.8:
            self.add(META, {"schema": 1, "title": "random"})
        if self.rng.random() < 0.6:
            self.decide(self.prefix())
        while len(self.log) < count:
            self.turn()
        if self.chance(0.3):
            self.damage()
        return self.log

    def chance(self, share: float = 1.0) -> bool:
        return self.rng.random() < self.disorder * share

    def name(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}_{self.serial}"

    def add(self, kind: str, body: dict[str, Any]) -> None:
        self.clock += self.rng.choice((0.5, 3.0, 40.0, 400.0, 4000.0))
        parent = self.log[-1].uuid if self.log else None
        self.log.append(Entry(self.name("entry"), parent, iso(self.clock), "random", kind, body))

    def decide(self, decision: Decision) -> None:
        self.add(DECISION, body_of(decision))

    def text(self) -> dict[str, Any]:
        return {"type": "text", "text": self.rng.choice(_TEXTS)}

    def image(self) -> dict[str, Any]:
        if self.chance(0.3):
            return image_block(*self.rng.choice(_ODD_IMAGES))
        return image_block(_PIXEL)

    def turn(self) -> None:
        if self.open and not self.chance(0.6):
            self.results()
        elif self.rng.random() < 0.45:
            self.reply()
        elif self.rng.random() < 0.7:
            self.user()
        else:
            self.decision()

    def user(self) -> None:
        if self.rng.random() < 0.4:
            content: Any = self.rng.choice(_TEXTS)
        else:
            content = [
                self.text() if self.rng.random() < 0.7 else self.image() for _ in range(self.rng.randrange(0, 4))
            ]
            if self.chance(0.1):
                content = [self.image() for _ in range(120)]
        if self.chance(0.3):
            content = self.rng.choice(
                [
                    *(None, 7, "bare", [None], [["deep"]], [{"no": "type"}], [{"type": "novel", "x": 1}]),
                    [{"type": "cache_edits", "tool_use_ids": ["t"]}],
                ]
            )
        kind = ATTACHMENT if self.rng.random() < 0.2 else self.rng.choice((USER, USER, USER, SYSTEM, "progress"))
        self.add(kind, {"message": {"role": self.rng.choice(("user", "user", "system")), "content": content}})

    def reply(self) -> None:
        if not self.chance():
            self.message_id = self.name("msg")
        blocks: list[Any] = []
        if self.rng.random() < 0.3:
            signature = "" if self.chance() else self.name("signature")
            blocks.append({"type": "thinking", "thinking": self.rng.choice(_TEXTS), "signature": signature})
        if self.rng.random() < 0.15:
            blocks.append({"type": "redacted_thinking", "data": "" if self.chance() else "opaque"})
        if self.rng.random() < 0.7:
            blocks.append(self.text())
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 5))):
            blocks.append(self.call())
        if self.chance(0.4):
            blocks.append(self.server_call())
        if self.chance(0.3):
            blocks.insert(0, self.rng.choice(_OF_PROVIDER))
        if self.chance(0.3):
            self.rng.shuffle(blocks)
        usage = {"input_tokens": self.rng.randrange(1, 5000), "output_tokens": self.rng.randrange(1, 500)}
        reply: dict[str, Any] = {"id": self.message_id, "model": "claude-test"}
        if self.rng.random() < 0.8:
            reply["usage"] = usage
        content: Any = self.rng.choice(_TEXTS) if self.chance(0.3) else blocks
        self.add(ASSISTANT, {"message": {"role": "assistant", "content": content}, "reply": reply})

    def call(self) -> dict[str, Any]:
        called = self.rng.choice(self.called) if self.called and self.chance(0.3) else self.name("toolu")
        self.called.append(called)
        self.open.append(called)
        block: dict[str, Any] = {"type": "tool_use", "id": called, "name": self.rng.choice(_TOOLS), "input": {"n": 1}}
        if self.chance(0.3):
            block.update(self.rng.choice(({"id": "bad id!"}, {"name": ""}, {"input": "text"}, {"surprise": True})))
        return block

    def server_call(self) -> dict[str, Any]:
        called = self.name("srvtoolu")
        if self.rng.random() < 0.5:
            return {"type": "web_search_tool_result", "tool_use_id": called, "content": []}
        return {"type": "server_tool_use", "id": called, "name": "web_search", "input": {}}

    def results(self) -> None:
        answered = self.open if self.rng.random() < 0.7 else self.open[: self.rng.randrange(len(self.open) + 1)]
        self.open = [] if self.rng.random() < 0.8 else self.open[len(answered) :]
        blocks = [self.result(called) for called in answered]
        if self.chance():
            blocks.append(self.result(self.name("lost")))
        if self.chance():
            self.rng.shuffle(blocks)
        if self.chance():
            blocks.insert(0, self.text())
        if self.rng.random() < 0.5:
            for block in blocks:
                self.add(USER, {"message": {"role": "user", "content": [block]}})
        else:
            self.add(USER, {"message": {"role": "user", "content": blocks}})

    def result(self, called: str) -> dict[str, Any]:
        content: Any = self.rng.choice(_TEXTS)
        if self.rng.random() < 0.3:
            content = [self.text(), self.image()]
        if self.chance(0.3):
            content = self.rng.choice([None, 3, [7], {"a": 1}, [{"type": "novel"}]])
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": called, "content": content}
        if self.rng.random() < 0.2:
            block["is_error"] = "yes" if self.chance() else True
        return block

    def prefix(self) -> PrefixRendered:
        tools: list[dict[str, Any]] = [{"name": name, "input_schema": {"type": "object"}} for name in _TOOLS]
        options: dict[str, Any] = {"max_tokens": 4000}
        if self.chance():
            tools = self.rng.choice([[], [{"name": "bad name"}], [*tools, *tools], [{"name": "x"}]])
            options = self.rng.choice(
                [
                    {"max_tokens": 0},
                    {"max_tokens": 0, "stream": True},
                    {"max_tokens": 1_000_000},
                    {"thinking": {"type": "enabled", "budget_tokens": 9}},
                    {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "tool_choice": {"type": "any"}},
                    {"thinking": {"type": self.rng.choice(("adaptive", "disabled", "between_tools", "loud"))}},
                    {"temperature": 0.5, "top_p": 0.5, "top_k": 5, "thinking": {"type": "adaptive"}},
                    {"tool_choice": {"type": "any"}, "output_config": {"effort": "max"}},
                    {"thinking": {"type": "disabled"}, "output_config": {"effort": "xhigh"}},
                    {"stop_sequences": [" "], "metadata": {"name": "x"}, "service_tier": "best", "speed": 3},
                    {"compaction": {"type": "summarize"}, "stop_sequences": ["x"]},
                    {"tool_choice": {"type": "tool", "name": "absent"}},
                    {"unheard_of": 1, "context_management": {"edits": [{"type": "clear_thinking_20251015"}]}},
                ]
            )
        system = self.rng.choice([None, "You are kind.", "", [{"type": "text", "text": "Be brief."}], [{}], 5])
        model = self.rng.choice(("claude-test", "", *_MODELS))
        capabilities = [CLEARS] if self.rng.random() < 0.5 and facts_of(model).context_editing else []
        return PrefixRendered(_CAUSE, model, system, tools, options, capabilities=capabilities)

    def decision(self) -> None:
        said = [entry.uuid for entry in self.log] or ["nobody"]
        called = self.called[-4:] or ["nothing"]
        pick = self.rng.choice
        made: list[Decision] = [
            self.prefix(),
            ResultsCleared(_CAUSE, [Replacement(one, "[cleared]") for one in called]),
            ClearingBoundaryMoved(_CAUSE, pick(called), ["Agent"]),
            ResultsClearedByProvider(_CAUSE, called, "cleared, handle: x", 10, len(called), len(called)),
            ResultsRestored(_CAUSE, called),
            ResultOffloaded(_CAUSE, pick(called), "<persisted-output>", "p", "h", 9),
            ResultStubbed(_CAUSE, pick(called), "[stub]"),
            ImagesDropped(_CAUSE, [Image(pick(said), self.rng.randrange(3))], pick(("", "[image]"))),
            Compacted(_CAUSE, "auto", "full", pick(("A summary.", "")), 10, None, pick((None, *said[-6:]))),
            Compacted(_CAUSE, "auto", "provider", "A summary.", 10, None, pick((None, *said[-6:])), block=_SIGNED),
            Snipped(_CAUSE, [pick(said)]),
            Collapsed(_CAUSE, pick(said), pick(said), "[collapsed]"),
            CompactionUndone(_CAUSE, pick(said)),
            CacheEdits(_CAUSE, called, pick(said)),
            MessageQueued(_CAUSE, "q", pick(_TEXTS)),
            InstructionsAttached(_CAUSE, ["AGENTS.md"], pick(_TEXTS)),
        ]
        self.decide(pick(made))

    def damage(self) -> None:
        """Lose, repeat or move a few entries, as crashes and splices do."""
        for _ in range(self.rng.randrange(1, 4)):
            if not self.log:
                return
            at = self.rng.randrange(len(self.log))
            match self.rng.randrange(4):
                case 0:
                    del self.log[at]
                case 1:
                    self.log.insert(self.rng.randrange(len(self.log)), self.log[at])
                case 2:
                    del self.log[at:]
                case _:
                    self.log.insert(at, Entry(self.name("odd"), None, "", "", DECISION, {"decision": "unheard_of"}))
