"""A browser, a tab and a server for tests that look at a built site as a reader does."""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Playwright,
    Request,
    Response,
    expect,
    sync_playwright,
)

WIDE, NARROW, WIDEST = 1280, 390, 1920
# Why a test waits for `make test-all`: others show that the page's script works at all.
MORE = "more that a reader may do with a page"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
INDEX = "search/search_index.json"  # of Material; Zensical asks for its own when it is opened
PACKED = {".html", ".css", ".js", ".json", ".svg"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ELSEWHERE = (
    "/usr/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files as a real host does, on open connections and to be cached; keeps no log.

    The site lies below `base`, and its page of what is missing stands for what is. Where nobody
    searches, Material's index names no page: with every page that it opens, a browser makes a tree
    of all words of the site.
    """

    protocol_version = "HTTP/1.1"
    base = "/"
    search = True
    packs = False

    def __init__(
        self, *args: Any, base: str = "/", search: bool = True, packs: bool = False, **more: Any
    ) -> None:
        self.base, self.search, self.packs = base, search, packs
        super().__init__(*args, **more)

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if not self.search and self.path == f"{self.base}{INDEX}":
            text = json.dumps(json.loads(path.read_bytes()) | {"docs": []}).encode()
        elif self.packs and path.suffix in PACKED and path.is_file():
            text = path.read_bytes()
        else:
            return super().do_GET()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(str(path)))
        if self.packs:
            text = gzip.compress(text)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def translate_path(self, path: str) -> str:
        inside = path.startswith(self.base)
        return super().translate_path(path.removeprefix(self.base) if inside else "/nowhere")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory, "404.html")
        if code != HTTPStatus.NOT_FOUND or not page.is_file():
            return super().send_error(code, message, explain)
        text = page.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve_site(
    folder: Path, base: str = "/", search: bool = False, packs: bool = False
) -> Iterator[str]:
    """The address of a built site, served below `base` from a thread on this machine.

    With `packs` texts come compressed, as from a host; only who measures needs it.
    """
    made = functools.partial(Quiet, directory=str(folder), base=base, search=search, packs=packs)
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}{base.removesuffix('/')}"
        server.shutdown()
        thread.join()


def find_browser(playwright: Playwright) -> str | None:
    candidates = [shutil.which(name) for name in BROWSERS]
    candidates += [*ELSEWHERE, playwright.chromium.executable_path]
    return next((path for path in candidates if path and Path(path).exists()), None)


@contextmanager
def launch_browser() -> Iterator[Browser]:
    """A browser of this machine; a test that needs one is skipped where there is none."""
    with sync_playwright() as playwright:
        executable = find_browser(playwright)
        if executable is None:
            reason = f"no browser found; install one of {', '.join(BROWSERS)}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


def open_context(browser: Browser, width: int, **options: object) -> BrowserContext:
    context = browser.new_context(viewport={"width": width, "height": 800}, **options)
    context.set_default_timeout(10_000)
    context.set_default_navigation_timeout(30_000)  # a long page, on a machine that is busy
    return context


@dataclass
class Visit:
    """A tab and what went wrong in it since it last went to a page."""

    tab: Page
    origin: str
    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tab.on("request", self._note_foreign_request)
        self.tab.on("requestfailed", self._note_lost_request)
        self.tab.on("response", self._note_failed_answer)
        self.tab.on("pageerror", lambda error: self.console.append(str(error)))
        self.tab.on("console", self._note_console_error)

    def _note_foreign_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:", "blob:")):
            self.foreign.append(request.url)

    def _note_lost_request(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the tab went on before it was answered
            self.failed.append(f"{request.url} ({request.failure})")

    def _note_failed_answer(self, response: Response) -> None:
        if response.status >= 400:
            self.failed.append(f"{response.url} ({response.status})")

    def _note_console_error(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console.append(message.text)

    def open_page(self, page: str) -> Page:
        """Go to a page, and stay for what it asks for late."""
        for list_ in (self.foreign, self.failed, self.console):
            list_.clear()
        self.tab.goto(f"{self.origin}/{page}", wait_until="load")
        self.tab.wait_for_timeout(50)
        return self.tab


def press_button(tab: Page, name: str) -> None:
    """Press one of the buttons of a view that choose architecture or code."""
    pressed = tab.get_by_role("button", name=name, exact=True)
    pressed.click()
    expect(pressed).to_have_attribute("aria-pressed", "true")


def source_row(tab: Page, text: str) -> Locator:
    """The row of a line of source in a view."""
    return tab.get_by_role("grid", name="Source").get_by_role("row").filter(has_text=text)


def code_row(tab: Page, text: str) -> Locator:
    """The row of an instruction in a view."""
    return tab.locator(".ws-pane").nth(1).get_by_role("row").filter(has_text=text)
