"""What is known of a model's window, from the table of prices that is installed anyway."""

from __future__ import annotations

from ..conversation.window import Capabilities

__all__ = ["capabilities"]


def capabilities(model: str) -> Capabilities | None:
    """Look a model up by its name, with or without the provider in front; None where it is not known."""
    bare = model.strip().lstrip("@")
    if not bare:
        return None
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    for name in dict.fromkeys((bare, bare.split("/")[-1])):
        try:
            _, found = snapshot.find_provider_model(name, None, None, None)
        except LookupError:
            continue
        if found.context_window:
            return Capabilities(window_tokens=found.context_window)
    return None
