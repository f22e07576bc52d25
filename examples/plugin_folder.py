"""Build the plugin folder for other coding agents and run one of its hooks as Claude Code does."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from reverie import Memory

with tempfile.TemporaryDirectory() as folder:
    os.environ["REVERIE_HOME"] = f"{folder}/home"
    project, plugin = Path(folder, "project"), Path(folder, "plugin")
    project.mkdir()
    Memory.open(project).save("Integration tests use the real database", type="feedback", why="a mock hid a bug")

    words = [sys.executable, "-m", "reverie.cli.start"]
    subprocess.run([*words, "install", "--plugin", plugin], check=True, stdout=subprocess.DEVNULL)
    print("forms:", *sorted(path.name for path in plugin.iterdir() if path.is_dir()))

    root = plugin / "claude-code"
    entry = json.loads((root / "hooks" / "hooks.json").read_text())["hooks"]["UserPromptSubmit"][0]["hooks"][0]
    payload = {"session_id": "s1", "cwd": str(project), "prompt": "How do we run the integration tests?"}
    command = entry["command"].replace("${CLAUDE_PLUGIN_ROOT}", str(root))
    done = subprocess.run(["sh", "-c", command], input=json.dumps(payload), capture_output=True, text=True, check=True)
    print(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"])

    subprocess.run([*words, "uninstall", "--yes"], check=True, stdout=subprocess.DEVNULL)
    print("deleted:", not plugin.exists())
