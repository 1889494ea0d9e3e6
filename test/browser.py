"""A headless Chromium, driven over WebDriver's HTTP protocol by its own chromedriver."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import av
import numpy as np

ARGUMENTS = [
    '--headless=new', '--no-sandbox', '--disable-dev-shm-usage', '--window-size=1280,800',
    # WebGL on the processor.
    '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader',
    '--ignore-gpu-blocklist', '--no-first-run', '--disable-background-networking',
    # No name is looked up: the page must do without the internet.
    '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
]
ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'


class Browser:
    """One window."""

    def __init__(self, log: Path):
        driver = shutil.which('chromedriver')
        chromium = shutil.which('chromium') or shutil.which('chromium-browser') \
            or shutil.which('google-chrome')
        if not driver or not chromium:
            raise RuntimeError('the browser tests need Chromium and its driver: '
                               'apt install chromium chromium-driver')
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._log = log
        with log.open('wb') as stream:
            self._process = subprocess.Popen(
                [driver, '--port=0'], stdout=stream, stderr=subprocess.STDOUT)
        self._session = ''
        self._url = self._until_ready()
        options = {'binary': chromium, 'args': [
            *ARGUMENTS, f'--user-data-dir={self._profile.name}']}
        answer = self._ask('POST', '/session', {'capabilities': {'alwaysMatch': {
            'browserName': 'chrome', 'goog:chromeOptions': options,
            'goog:loggingPrefs': {'browser': 'ALL'}}}})
        self._session = f'/session/{answer["sessionId"]}'

    def _until_ready(self) -> str:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
            found = re.search(r'successfully on port (\d+)', self._log.read_text())
            if found:
                return f'http://127.0.0.1:{found[1]}'
            assert self._process.poll() is None, self._log.read_text()
        raise AssertionError('chromedriver does not start')

    def _ask(self, method: str, path: str, body: object = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + self._session + path, data, {'Content-Type': 'application/json'},
            method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)['value']
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()[:500]) from None

    def open(self, url: str) -> None:
        self._ask('POST', '/url', {'url': url})

    def leave(self) -> None:
        """Show nothing, let go of the mouse, and forget what the page has complained of."""
        self._ask('DELETE', '/actions')
        self.open('about:blank')
        self.errors()

    def run(self, script: str, *arguments: object):
        """Return what a function body in JavaScript returns."""
        return self._ask('POST', '/execute/sync', {'script': script, 'args': list(arguments)})

    @property
    def text(self) -> str:
        """Return all text that is visible."""
        return self.run('return document.body.innerText')

    def errors(self) -> list[str]:
        """Return what the page has complained of since the last time."""
        return [each['message'] for each in self._ask('POST', '/se/log', {'type': 'browser'})
                if each['level'] == 'SEVERE']

    def button(self, label: str) -> str:
        """Return the handle of a button by its text."""
        found = self._ask('POST', '/element', {
            'using': 'xpath', 'value': f'//button[normalize-space(.)="{label}"]'})
        return found[ELEMENT]

    def enabled(self, label: str) -> bool:
        return self._ask('GET', f'/element/{self.button(label)}/enabled')

    def press(self, label: str) -> None:
        """Press a button with the mouse, and hold it."""
        element = {ELEMENT: self.button(label)}
        self.run('arguments[0].scrollIntoView({block: "center"})', element)
        self._mouse({'type': 'pointerMove', 'duration': 0, 'x': 0, 'y': 0, 'origin': element},
                    {'type': 'pointerDown', 'button': 0})

    def let_go(self) -> None:
        self._mouse({'type': 'pointerUp', 'button': 0})

    def click(self, label: str) -> None:
        self.press(label)
        self.let_go()

    def place(self, label: str) -> list[float]:
        """Return where a button is in the window: left, top, in pixels."""
        return self.run('const place = arguments[0].getBoundingClientRect();'
                        'return [place.left, place.top]', {ELEMENT: self.button(label)})

    def _mouse(self, *actions: dict) -> None:
        self._ask('POST', '/actions', {'actions': [{
            'type': 'pointer', 'id': 'mouse', 'parameters': {'pointerType': 'mouse'},
            'actions': list(actions)}]})

    def screenshot(self, path: Path | None = None) -> np.ndarray:
        """Return the page's picture, uint8 [height, width, 3]; keep it as PNG in ``path``."""
        content = base64.b64decode(self._ask('GET', '/screenshot'))
        if path is None:
            path = Path(self._profile.name) / 'screenshot.png'
        path.write_bytes(content)
        with av.open(str(path)) as container:
            return next(container.decode(video=0)).to_ndarray(format='rgb24')

    def kill(self) -> None:
        """Let it die as a crashed browser does: nothing is said to anybody."""
        subprocess.run(['pkill', '-9', '-f', self._profile.name], check=False)

    def close(self) -> None:
        if self._session and self._process.poll() is None:
            try:
                self._ask('DELETE', '')
            except (AssertionError, OSError):
                self.kill()
        self._process.terminate()
        self._process.wait(10)
        self.kill()
        self._profile.cleanup()
