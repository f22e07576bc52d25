"""A headless Chromium, driven over the WebDriver protocol; tests that need one are skipped where there is none."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """A headless Chromium, driven over the WebDriver protocol."""

    def __init__(self, driver: str, chromium: str, profile: Path) -> None:
        self.process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.session = ""
        try:
            self._start(chromium, profile)
        except BaseException:
            self.close()
            raise

    def _start(self, chromium: str, profile: Path) -> None:
        self.base = f"http://127.0.0.1:{self._port()}"
        arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", f"--user-data-dir={profile}",
        ]  # fmt: skip
        options = {"binary": chromium, "args": arguments}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def _port(self) -> int:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if found := re.search(r"successfully on port (\d+)", line):
                return int(found.group(1))
        raise AssertionError("the driver did not start")

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def tell(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.ask(method, f"/session/{self.session}{path}", body)

    def cdp(self, command: str, **given: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self.tell("POST", "/goog/cdp/execute", {"cmd": command, "params": given})

    def renew(self, width: int, **media: str) -> None:
        """Leave the page, forget what was said and asked, and take this width and these media features."""
        self.tell("POST", "/url", {"url": "about:blank"})
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.cdp("Emulation.setEmulatedMedia", features=features)
        self.said()

    def said(self) -> list[str]:
        """Return what the console said since the last look."""
        return [entry["message"] for entry in self.tell("POST", "/se/log", {"type": "browser"})]

    def run(self, script: str) -> Any:
        return self.tell("POST", "/execute/sync", {"script": script, "args": []})

    def wait(self, script: str) -> Any:
        """Run a script until it returns something, for at most a minute, and return that."""
        for _ in range(3_000):
            if found := self.run(script):
                return found
            time.sleep(0.02)
        raise AssertionError(f"nothing came of {script}")

    def press(self, key: str) -> None:
        """Press a key of the keyboard."""
        presses = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.tell("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": presses}]})

    def visit(self, file: Path) -> tuple[list[str], list[str]]:
        """Open a file; return what the console said and what else was asked for."""
        self.tell("POST", "/url", {"url": "about:blank"})
        self.tell("POST", "/se/log", {"type": "performance"})  # what the browser's own first page asked for
        self.tell("POST", "/url", {"url": file.as_uri()})
        self.run("return document.readyState")
        said = self.said()
        events = [
            json.loads(entry["message"])["message"] for entry in self.tell("POST", "/se/log", {"type": "performance"})
        ]
        asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
        return said, [url for url in asked if url != file.as_uri() and not url.startswith("data:")]

    def close(self) -> None:
        try:
            if self.session:
                self.ask("DELETE", f"/session/{self.session}")
        finally:
            self.process.terminate()
            self.process.communicate(timeout=60)


def opened_browser(profile: Path, width: int = 1280) -> Iterator[Browser]:
    """Yield a browser of this width and close it at the end; skip the test if this machine has none."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("chromium-browser")
    if driver is None or chromium is None:
        pytest.skip("no Chromium here: install chromium and chromium-driver")
    opened = Browser(driver, chromium, profile)
    try:
        opened.renew(width)
        yield opened
    finally:
        opened.close()
