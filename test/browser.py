"""A headless Chromium for tests, controlled by chromedriver over the WebDriver protocol."""

import base64
import contextlib
import io
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
import pytest

ARGUMENTS = [
    '--headless=new', '--no-sandbox', '--disable-dev-shm-usage', '--window-size=1280,800',
    # WebGL in software.
    '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader',
    '--ignore-gpu-blocklist', '--no-first-run', '--disable-background-networking',
    # Name resolution fails: the page must work without the internet.
    '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
]
#: How long a page may take on a machine that does much else.
PATIENCE_S = 110
ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'


class Browser:
    """One browser window."""

    def __init__(self, log: Path):
        driver = shutil.which('chromedriver')
        chromium = shutil.which('chromium') or shutil.which('chromium-browser') \
            or shutil.which('google-chrome')
        if not driver or not chromium:
            raise RuntimeError('the browser tests need Chromium and its driver: '
                               'apt install chromium chromium-driver')
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._log = log
        self._session = ''
        self._is_dead = False
        self._url = self._start(driver)
        options = {'binary': chromium, 'args': [
            *ARGUMENTS, f'--user-data-dir={self._profile.name}']}
        response = self._request('POST', '/session', {'capabilities': {'alwaysMatch': {
            'browserName': 'chrome', 'goog:chromeOptions': options,
            'timeouts': {'script': PATIENCE_S * 1000, 'pageLoad': PATIENCE_S * 1000},
            'goog:loggingPrefs': {'browser': 'ALL'}}}})
        self._session = f'/session/{response["sessionId"]}'

    def _start(self, driver: str) -> str:
        """Start chromedriver and return its address."""
        deadline = time.monotonic() + 120
        process = None
        while time.monotonic() < deadline:
            if process is None or process.poll() is not None:
                with self._log.open('wb') as stream:
                    process = self._process = subprocess.Popen(
                        [driver, '--port=0'], stdout=stream, stderr=subprocess.STDOUT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
            text = self._log.read_text()
            if found := re.search(r'successfully on port (\d+)', text):
                return f'http://127.0.0.1:{found[1]}'
            # It chooses a free port of IPv6, which another process may have on IPv4.
            assert process.poll() is None or 'Address already in use' in text, text
        raise AssertionError('chromedriver did not start')

    def _request(self, method: str, path: str, body: object = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + self._session + path, data, {'Content-Type': 'application/json'},
            method=method)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=120) as response:
                    return json.load(response)['value']
            except urllib.error.HTTPError as error:
                text = error.read().decode()[:500]
                # The driver waits for the page 10 s, which a busy machine may need longer.
                if 'receiving message from renderer' not in text or time.monotonic() > deadline:
                    raise AssertionError(text) from None

    def open(self, url: str) -> None:
        self._request('POST', '/url', {'url': url})

    def run(self, script: str, *arguments: object):
        """Run a JavaScript function body and return its result."""
        return self._request('POST', '/execute/sync', {'script': script, 'args': list(arguments)})

    @property
    def text(self) -> str:
        """The visible text."""
        return self.run('return document.body.innerText')

    def errors(self) -> list[str]:
        """Return the errors that the page has logged since the last call."""
        return [each['message'] for each in self._request('POST', '/se/log', {'type': 'browser'})
                if each['level'] == 'SEVERE']

    def button(self, label: str) -> str:
        """Return the element id of a button by its text."""
        found = self._request('POST', '/element', {
            'using': 'xpath', 'value': f'//button[normalize-space(.)="{label}"]'})
        return found[ELEMENT]

    def enabled(self, label: str) -> bool:
        return self._request('GET', f'/element/{self.button(label)}/enabled')

    def press(self, label: str) -> None:
        """Press the mouse on a button and hold it."""
        deadline = time.monotonic() + 60
        while True:
            element = {ELEMENT: self.button(label)}
            self.run('arguments[0].scrollIntoView({block: "center"})', element)
            # Folders open and close slowly: the button must stand where the mouse goes.
            place = None
            while place != (place := self.place(label)):
                pass
            self._mouse(
                {'type': 'pointerMove', 'duration': 0, 'x': 0, 'y': 0, 'origin': element},
                {'type': 'pointerDown', 'button': 0})
            # A busy page may have moved it all the same.
            if self.run('return arguments[0].matches(":active")', element):
                return
            self.let_go()
            assert time.monotonic() < deadline, f'{label}: the mouse does not reach the button'

    def key(self, key: str) -> None:
        """Press and release a key."""
        self._request('POST', '/actions', {'actions': [{
            'type': 'key', 'id': 'keyboard', 'actions': [
                {'type': each, 'value': key} for each in ('keyDown', 'keyUp')]}]})

    def let_go(self) -> None:
        self._mouse({'type': 'pointerUp', 'button': 0})

    def click(self, label: str) -> None:
        """Press and let go of a button until the page has noticed a click on it."""
        deadline = time.monotonic() + 60
        self.run('document.clicked = []; document.addEventListener("click", event => {'
                 'document.clicked.push(event.target.closest("button")?.innerText); }, true)')
        while True:
            self.press(label)
            self.let_go()
            if label in (clicked := self.run('return document.clicked')):
                return
            assert time.monotonic() < deadline, f'{label}: not clicked, but {clicked}'

    def place(self, label: str) -> list[float]:
        """Return the position of a button in the window: left, top, in pixels."""
        return self.run('const place = arguments[0].getBoundingClientRect();'
                        'return [place.left, place.top]', {ELEMENT: self.button(label)})

    def _mouse(self, *actions: dict) -> None:
        self._request('POST', '/actions', {'actions': [{
            'type': 'pointer', 'id': 'mouse', 'parameters': {'pointerType': 'mouse'},
            'actions': list(actions)}]})

    def screenshot(self) -> np.ndarray:
        """Return a screenshot, uint8 [height, width, 3]."""
        content = io.BytesIO(base64.b64decode(self._request('GET', '/screenshot')))
        with av.open(content) as container:
            return next(container.decode(video=0)).to_ndarray(format='rgb24')

    def kill(self) -> None:
        """Kill the browser, as in a crash."""
        subprocess.run(['pkill', '-9', '-f', self._profile.name], check=False)
        self._is_dead = True

    def close(self) -> None:
        if self._session and not self._is_dead and self._process.poll() is None:
            with contextlib.suppress(AssertionError, OSError):
                self._request('DELETE', '')
        self._process.terminate()
        self._process.wait(10)
        self.kill()
        self._profile.cleanup()


@pytest.fixture
def browser(tmp_path):
    found = Browser(tmp_path / 'chromedriver.txt')
    yield found
    found.close()
