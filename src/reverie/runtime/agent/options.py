"""The options of one agent, with every default filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...layers.l7_relay import agent_name
from ...ports import Model, Storage
from ...settings import Mode, Settings
from ...tools.tool import Tool
from ...values import record
from ..guard.permissions import Approver
from ..mail.delivery import ControlHandler
from ..mail.post_office import Bridge
from .team.roster import Lineage


@record
class AgentOptions:
    """All options of one agent, with every default filled in."""

    model: str | Model | None
    """A model or its name; None uses the default of the provider table."""
    cwd: Path
    name: str
    """The name of the agent's session."""
    is_named: bool
    """Whether the caller chose the name; a generated name is never used for another session."""
    settings: Settings
    storage: Storage | None
    """Where the session's log is stored; None means files under ``settings.home``."""
    tools: Sequence[Tool] | None
    """The agent's tools; None means the standard tools, and those for memory and for other agents."""
    system: str | None
    """The agent's system prompt; None means the built-in one."""
    mode: Mode
    is_mode_given: bool
    """Whether the caller chose the mode; otherwise a resumed session has the mode of its approved plan."""
    approve: Approver | None
    hooks: Mapping[str, Sequence[Callable[..., Any]]]
    max_turns: int
    budget_usd: float | None
    clock: Callable[[], float]
    bridge: Bridge | None = None
    on_control: ControlHandler | None = None
    lineage: Lineage | None = None
    """A sub-agent's place in its team; None for a main agent."""
    address: str = ""
    """The name that the caller chose for messages of other agents; empty means the session's name."""
    subject: str = ""
    """The caller's id of the person that the session is about."""

    @property
    def agent_name(self) -> str:
        """The name that other agents use for this one."""
        return agent_name(self.address or self.name)
