"""A program that talks to the view as its page does, and one message of each kind to send it."""

import re
import socket
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

import msgspec
import viser
import zstandard
from websockets.sync.client import connect

PROTOCOL = f'viser-v{viser.__version__}'
CAMERA = {'type': 'ViewerCameraMessage', 'wxyz': [1, 0, 0, 0], 'position': [1, 1, 1.5], 'fov': 1,
          'near': 0.1, 'far': 10, 'image_height': 100, 'image_width': 100, 'look_at': [0, 0, 0],
          'up_direction': [0, 0, 1]}
encode = msgspec.msgpack.encode


def kinds(button: str = 'button') -> dict[str, dict]:
    """Return a message of each kind that viser's server handles, by its kind."""
    pointed = {'owner': '', 'name': '/arm', 'ray_origin': None, 'ray_direction': None}
    messages = [
        CAMERA,
        {'type': 'GuiButtonHoldMessage', 'uuid': button, 'frequency': 20.0},
        {'type': 'GuiUpdateMessage', 'uuid': button, 'updates': {'value': True}},
        {'type': 'TransformControlsUpdateMessage', 'name': '/target', 'wxyz': [1, 0, 0, 0],
         'position': [0.1, 0.1, 0.2], 'owner': ''},
        {'type': 'TransformControlsDragStartMessage', 'name': '/target', 'owner': ''},
        {'type': 'TransformControlsDragEndMessage', 'name': '/target', 'owner': ''},
        {'type': 'CommandTriggerMessage', 'uuid': button},
        {'type': 'GuiFormSubmitMessage', 'uuid': button},
        {'type': 'GuiFormDirtyMessage', 'uuid': button},
        {'type': 'FileTransferStartUpload', 'source_component_uuid': button,
         'transfer_uuid': 'file', 'filename': 'file', 'mime_type': 'text/plain',
         'part_count': 1, 'size_bytes': 4},
        {'type': 'FileTransferPart', 'source_component_uuid': button, 'transfer_uuid': 'file',
         'part_index': 0, 'content': b'file'},
        {'type': 'SceneNodeClickMessage', **pointed, 'instance_index': None},
        {'type': 'ScenePointerMessage', 'event_type': 'click', 'ray_origin': None},
        {'type': 'ShareUrlRequest'},
        {'type': 'ShareUrlDisconnect'},
    ]
    return {each['type']: each for each in messages}


class PageClient(AbstractContextManager):
    """A websocket of the view, opened like that of its page."""

    def __init__(self, url: str, *, host: str | None = None, origin: str | None = '') -> None:
        """Connect.

        Args:
            url: as printed.
            host: what to send as Host instead of that of the address.
            origin: what to send as Origin; '': the page's own; None: none.

        Raises:
            websockets.exceptions.InvalidStatus: the server refused.
        """
        parts = urlsplit(url)
        own = f'{parts.scheme}://{parts.netloc}'
        self._stream = socket.create_connection((parts.hostname, parts.port), timeout=60)
        path = parts.path.rstrip('/')
        try:
            self._socket = connect(
                f'ws://{host or parts.netloc}{path}', sock=self._stream,
                origin=own if origin == '' else origin, subprotocols=[PROTOCOL], proxy=None,
                compression=None, max_size=None, open_timeout=60, close_timeout=0)
        except BaseException:
            self._stream.close()
            raise
        #: The text of each element of the panel and its id.
        self.ids: dict[str, str] = {}

    def send(self, message: dict | bytes | str) -> None:
        self._socket.send(message if isinstance(message, (bytes, str)) else encode(message))

    def press(self, label: str) -> None:
        self.send({'type': 'GuiUpdateMessage', 'uuid': self.ids[label],
                   'updates': {'value': True}})

    def receive(self) -> bytes:
        """Return the next message of the server."""
        return self._socket.recv(timeout=60)

    def receive_decoded(self) -> list[dict]:
        """Return the messages in the next message of the server."""
        data = self.receive()
        length = int.from_bytes(data[8:16], 'little')
        inner = zstandard.ZstdDecompressor().decompress(data[16:16 + length])
        return msgspec.msgpack.decode(inner)['messages']

    def read(self, *labels: str) -> None:
        """Receive until elements with these labels were announced."""
        while not {*labels} <= {*self.ids}:
            for each in self.receive_decoded():
                if re.fullmatch(r'Gui\w+Message', each['type']) and 'props' in each:
                    self.ids[each['props'].get('label', '')] = each['uuid']

    def close(self) -> None:
        self._socket.close()
        self._stream.close()

    def __exit__(self, *_: object) -> None:
        self.close()
