"""Let a dreaming model read the project with the agent's own Read, Grep and Glob, under its permission rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...settings import PermissionRules
from ...tools.context import ToolContext
from ...tools.tool import Tool
from ...values import replace
from ..guard.permissions import PermissionScope, decide, denied_reads


class ProjectReader:
    """Reads files of one project; nothing outside it, nothing that a rule denies, and it writes nothing."""

    def __init__(self, project: Path, rules: PermissionRules) -> None:
        self._rules = replace(rules, allow=(), directories=())
        self._context = ToolContext(cwd=project, session="").forked(
            restricted=True, reads_inside=True, denied=denied_reads(rules)
        )
        self._tools: dict[str, Tool] = {}

    async def read(self, name: str, given: Mapping[str, Any]) -> tuple[str, bool]:
        """Return the text of one call of Read, Grep or Glob, and whether it is an error."""
        if not self._tools:
            from ...tools import standard_tools

            self._tools = {tool.name: tool for tool in standard_tools(self._context.policy)}
        tool = self._tools[name]
        scope = PermissionScope(self._context.cwd, directories=self._context.directories, sandboxed=False)
        verdict = decide(self._rules, "default", name, tool.access(given, self._context), scope)
        if verdict.outcome != "allow":
            return f"This was not read: {verdict.reason}", True
        output = await tool.run(given, self._context)
        return output.text, output.is_error
