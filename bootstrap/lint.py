"""Run ruff, mypy and import-linter; each of them, even if another one fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = {
    'ruff': [sys.executable, '-m', 'ruff', 'check', '--quiet', '.'],
    'mypy': [sys.executable, '-m', 'mypy', '--num-workers', 'auto'],
    'import arrows': [str(Path(sys.executable).with_name('lint-imports'))],
}


def main() -> int:
    """Run every check; return the number that failed."""
    # Check src, not the installed package, which also contains generated messages.
    paths = [ROOT / 'src', ROOT / 'bootstrap' / 'ros2_standin', os.environ.get('PYTHONPATH', '')]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, paths)))
    failed = 0
    for name, command in CHECKS.items():
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True,
                              check=False)
        print(f'lint: {name}: {"ok" if not done.returncode else "FAILED"}', flush=True)
        if done.returncode:
            print(done.stdout + done.stderr, flush=True)
            failed += 1
    return failed


if __name__ == '__main__':
    sys.exit(main())
