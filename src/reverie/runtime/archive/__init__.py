"""The archive: keep the sessions of other agents in the library, extended as they grow and never shortened."""

from .keeper import AgentSessions, Keeper, KeepReport

__all__ = ["AgentSessions", "KeepReport", "Keeper"]
