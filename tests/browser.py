"""A headless Chromium spoken to over pipes (DevTools protocol): what a page is to a reader, without a web driver."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

_CLOSING_S: Final = 30
NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser_path() -> str:
    """Return a browser on this machine, or skip the test."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} (scripts/test-slow installs one where apt-get works)")
    return found


class Browser:
    """One page in one browser. A context manager: the process and its profile end with it."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        read, their_write = os.pipe()
        their_read, write = os.pipe()
        command = [path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={self._profile.name}", "about:blank"]
        # The browser reads its descriptor 3 and writes to its 4: a shell puts ours there, whatever their numbers are.
        shell = f'exec "$@" 3<&{their_read} 4>&{their_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(their_read, their_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_read)
        os.close(their_write)
        self._from = os.fdopen(read, "rb")
        self._to = os.fdopen(write, "wb", buffering=0)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session = None  # asked of the browser, not of its page
        with contextlib.suppress(BrokenPipeError):  # it ends its own processes then, which still write to the profile
            self._send("Browser.close", {})
        try:
            self._process.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._from.close()
        with contextlib.suppress(BrokenPipeError):
            self._to.close()
        self._profile.cleanup()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return a command's answer, and keep the events that come before it."""
        self._send(method, parameters)
        for told in self._messages():
            if told.get("id") == self._number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result
            self.events.append(told)
        raise AssertionError(f"the browser ended before it answered {method}")

    def _send(self, method: str, parameters: Mapping[str, Any]) -> None:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")

    def open(self, url: str, *, width: int, height: int, mobile: bool = False, dark: bool = False) -> None:
        """Loads a page in a window of that size; returns when it is loaded."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=url)
        if not any(event["method"] == "Page.loadEventFired" for event in self.events):
            for event in self._messages():
                self.events.append(event)
                if event.get("method") == "Page.loadEventFired":
                    break

    def value(self, expression: str) -> Any:
        """Return what a JavaScript expression gives in the page."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press one key on the keyboard."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            down = text if kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **down)

    def screenshot(self, path: Path) -> None:
        """Save the whole page as PNG."""
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Messages as they come; what follows the last one taken is kept for the next call."""
        while True:
            message, zero, rest = self._buffer.partition(b"\0")
            if zero:
                self._buffer = rest
                yield json.loads(message)
                continue
            piece = self._from.read1(1 << 16)
            if not piece:
                return
            self._buffer += piece
