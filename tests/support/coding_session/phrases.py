"""The words of the user and of the agent in an invented session."""

from __future__ import annotations

from typing import Final

SYSTEM: Final = (
    "You are a coding agent working in /home/noor/harbour, a freight service: Python in harbour/, a Go gateway in "
    "gateway/, React pages in web/. Read before you edit. Quote the text to replace exactly. Run the tests of what you "
    "touch. Keep answers short, and say what you did not check."
)

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_FIELDS: Final = {
    "Read": ("Read a file, all of it or a range of lines.", {"file_path": _TEXT, "offset": _COUNT, "limit": _COUNT}, 1),
    "Edit": (
        "Replace one exact piece of a file.",
        {"file_path": _TEXT, "old_string": _TEXT, "new_string": _TEXT},
        3,
    ),
    "Write": ("Write a whole file.", {"file_path": _TEXT, "content": _TEXT}, 2),
    "Grep": ("Search files for a pattern.", {"pattern": _TEXT, "path": _TEXT, "output_mode": _TEXT}, 1),
    "Bash": ("Run a command and return what it prints.", {"command": _TEXT, "description": _TEXT}, 1),
}
TOOLS: Final[list[dict[str, object]]] = [
    {
        "name": name,
        "description": line,
        "input_schema": {"type": "object", "properties": dict(fields), "required": list(fields)[:needed]},
    }
    for name, (line, fields, needed) in _FIELDS.items()
]

OPENINGS: Final = {
    "fix": (
        "tests for {thing} fail on main since this morning, can you find out why and fix it?",
        "CI is red again: {thing}. Please fix the code, not the test.",
    ),
    "logs": (
        "the {thing} endpoint was slow between 8 and 9 today. Look at the service log and tell me what happened",
        "support says {thing} updates got lost today. Anything in the log?",
    ),
    "feature": (
        "the {thing} needs a second limit, per depot. Add it to the service, the gateway and the page",
        "let people undo the last change to the {thing}. Service and page, with tests please",
    ),
    "refactor": (
        "rename the grace period handling so {thing} and its neighbours use the same rule, and keep the tests green",
        "the {thing} service grew too long. Pull the cost rules out, nothing else may change",
    ),
    "review": (
        "review my branch before I open the pull request, mostly the {thing} part",
        "look over the diff, I am not sure about the rounding in {thing}",
    ),
    "question": (
        "how does the {thing} get from the page to the store? I need the order of calls for the docs",
        "where do we decide that the {thing} is stale, and can two depots race for it?",
    ),
}

# by the tool that is called next
STEPS: Final = {
    "Read": (
        "I'll look at the code first.",
        "The limit is checked before the transaction is open, so two callers can pass it. I'll look at both sides.",
        "I want to see this part again before I touch it.",
        "One more place uses the old rule.",
    ),
    "Grep": ("Let me see who else calls this.", "I'll search for the other places first."),
    "Bash": ("Running it now.", "Let me see what it prints.", "Checking that nothing else broke."),
    "Edit": (
        "That explains it. Changing it now.",
        "The fake clock and the service disagree about the grace period. This makes them agree.",
        "The same rule stands here once more.",
    ),
    "Write": ("The cases get a file of their own.",),
}
THOUGHTS: Final = (
    "The failing assertion compares an amount after rounding with one before. Either the service rounds twice or the "
    "test builds its expectation from the raw rate. The gateway shares the service, so changing the rounding there "
    "changes invoices. I should look at who calls the cost rule before I decide where the fix belongs.",
    "Two callers may hold the same row: the release job reads outside the transaction and writes inside. It compares "
    "the time of the last change, so a lost update needs the same timestamp twice. With a clock of one second that is "
    "likely under load. I will check the precision in the store before I say so.",
    "The user asked for a small change. The page, the gateway and the service each have the limit, so three edits, and "
    "the tests pin the message. I will keep the wording.",
    "I have read this file before, but it was edited since. I should read the part again and quote it exactly.",
)
CLOSINGS: Final = {
    "fix": (
        "Done. The cause was the limit in {short}: it was compared before the row was locked. I moved the check, and "
        "the tests of {thing} pass. I did not run the gateway's tests."
    ),
    "logs": (
        "From the log: rows of {thing} were locked by the release job while retries piled up, so updates waited and "
        "some gave up. {short} swallows that conflict. I changed nothing."
    ),
    "feature": (
        "The change is in and the tests pass. Two things to know: the old limit stays for open rows, and {short} still "
        "has its own copy of the constant."
    ),
    "refactor": (
        "All callers use the same rule now and the tests are green. {short} kept its names, since the gateway imports "
        "them. What is left are the type errors that were there before."
    ),
    "review": (
        "Three remarks. The rounding in {short} happens twice. The page sorts before it filters. And {thing} has no "
        "test for an empty depot. The rest reads well."
    ),
    "question": (
        "The page asks the gateway, the gateway asks {short}, and only there the row is locked. What I have not "
        "checked is what happens when two depots share the {thing}."
    ),
}
INTERRUPTED: Final = "[Stopped by the user]"
REFUSED: Final = "The user stopped this call before it ran. Nothing was changed; wait for what they say next."


def summary(asked: list[str], edited: list[str], now: str) -> str:
    """Return the summary that replaces the history: the user's requests, the edited files and the current work."""
    wishes = "\n".join(f"- {one}" for one in asked[-12:])
    changed = "\n".join(f"- {one}" for one in edited[-25:]) or "- nothing yet"
    return (
        "This session continues from an earlier part that no longer fits.\n\n"
        f"What was asked, in order:\n{wishes}\n\nFiles changed:\n{changed}\n\n"
        f"Current work: {now}\nNext: go on where this stopped; read a file again before editing it."
    )
