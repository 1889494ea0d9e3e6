"""Write docs/messages.md from the definitions of messages and services."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = '''# Messages and services

Written by `python3 docs/make_messages.py` from `msg` and `srv`; do not edit. \
[nodes.md](nodes.md) says who publishes them. In Python: `from vdl_ros.msg import TargetStatus`.
'''


def section(path: Path) -> Iterator[str]:
    """Yield the lines about one definition: its comment, and its fields."""
    lines = path.read_text(encoding='utf-8').strip().splitlines()
    count = next((number for number, line in enumerate(lines) if not line.startswith('#')),
                 len(lines))
    yield from (f'## {path.stem}', '')
    if count:
        yield from (' '.join(line.strip('# ') for line in lines[:count]), '')
    yield from (f'    {line}'.rstrip() for line in '\n'.join(lines[count:]).strip().splitlines())
    yield ''


def page() -> str:
    paths = [*sorted(ROOT.glob('msg/*.msg')), *sorted(ROOT.glob('srv/*.srv'))]
    return '\n'.join([HEAD, *(line for path in paths for line in section(path))])


if __name__ == '__main__':
    (ROOT / 'docs' / 'messages.md').write_text(page(), encoding='utf-8')
