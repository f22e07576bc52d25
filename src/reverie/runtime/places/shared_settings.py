"""The permission rules and hooks that a repository shares in its ``.reverie.toml``, once the user trusts them.

Trust covers the rules and hooks that the user saw: after a change of them, or of a file in the repository that a hook
names, they are left out until ``reverie trust`` is called again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...errors import SettingsError
from ...settings import HookCommand, PermissionRules, Settings
from ...settings.load import PROJECT_FILE, applied
from ...settings.sources import read_toml
from ...values import field, record, replace
from .hook_files import hashes_of, hook_files
from .projects import canonical_root
from .trust import TrustList


@record
class SharedSettings:
    """Lists of rules and hooks that a repository shares, and a digest of both with the hooks' files; empty without."""

    permissions: PermissionRules = PermissionRules()
    hooks: Mapping[str, tuple[HookCommand, ...]] = field(
        default_factory=lambda: MappingProxyType[str, tuple[HookCommand, ...]]({})
    )
    digest: str = ""

    @property
    def lines(self) -> list[str]:
        """Each rule and hook as text, with control characters as they are: show them by their numbers."""
        rules = self.permissions
        named = [("allow", rules.allow), ("ask", rules.ask), ("deny", rules.deny)]
        return [f"{kind} {rule}" for kind, ones in named for rule in ones] + [
            f"hook {event}{f' ({hook.matcher})' if hook.matcher else ''}: {hook.command}"
            for event, hooks in self.hooks.items()
            for hook in hooks
        ]


def shared_settings(project: Path) -> SharedSettings:
    """Return the rules and hooks of a project's file; raise ``SettingsError`` for a wrong rule or hook."""
    file = project / PROJECT_FILE
    given: dict[str, Any] = {key: value for key, value in read_toml(file).items() if key in ("permissions", "hooks")}
    if not given:
        return SharedSettings()
    found = applied(Settings(home=project), given, source=str(file))
    only = replace(
        PermissionRules(), allow=found.permissions.allow, ask=found.permissions.ask, deny=found.permissions.deny
    )
    if only != found.permissions:
        raise SettingsError(f"{file}: a project shares allow, ask and deny; put mode and directories in config.toml")
    if files := hashes_of(hook_files(found.hooks, project), project):
        given["files"] = files
    digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    return SharedSettings(only, found.hooks, digest)


def with_shared(settings: Settings, project: Path) -> tuple[Settings, str]:
    """Return the settings with the rules and hooks that a project shares, and a notice; empty if all are used.

    The user's own rules come first. Without trust in these very rules and hooks the settings stay as they are.
    """
    try:
        shared = shared_settings(project)
    except SettingsError as error:
        return settings, f"ignored: {error}"
    if not shared.digest:
        return settings, ""
    if TrustList.open(settings.home).settings_of(canonical_root(project)) != shared.digest:
        count = len(shared.lines)
        named = "1 rule or hook" if count == 1 else f"{count} rules and hooks"
        what = f"{named} of {project / PROJECT_FILE} {'is' if count == 1 else 'are'} not used"
        return settings, f"{what}: 'reverie trust' shows and accepts them"
    mine, theirs = settings.permissions, shared.permissions
    rules = replace(
        mine,
        allow=(*mine.allow, *theirs.allow),
        ask=(*mine.ask, *theirs.ask),
        deny=(*mine.deny, *theirs.deny),
    )
    events = dict.fromkeys([*settings.hooks, *shared.hooks])
    hooks = {event: (*settings.hooks.get(event, ()), *shared.hooks.get(event, ())) for event in events}
    return replace(settings, permissions=rules, hooks=MappingProxyType(hooks)), ""
