"""Finds Chromium, and as a program installs it where it is missing: `python -m tests.browser.chromium`."""

import os
import shutil
import subprocess
import sys

SHELL = "chromium-headless-shell"
"""Chromium without windows: it loads JupyterLab in two thirds of the time."""
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--site-per-process"]
"""The last gives frames of other sites processes of their own, as they have in Chromium with windows."""
MISSING = "Chromium was not found on the PATH: install it (Debian: apt-get install chromium)."


def find() -> str:
    """Give the path of the browser.

    Raises:
        FileNotFoundError: There is none; the text says what to install.
    """
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise FileNotFoundError(MISSING)


def main() -> int:
    """Install what is missing, as far as that is allowed here; give the exit status."""
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    may_install = bool(shutil.which("apt-get")) and (not root or _works([*root, "true"]))
    apt = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    installing = [*apt, "install", "-y", "--no-install-recommends"]
    if may_install and not shutil.which(SHELL):
        _works([*installing, SHELL])  # not every distribution has it
    try:
        find()
    except FileNotFoundError as error:
        if not may_install:
            print(error, file=sys.stderr)
            return 1
        print("chromium: installing it by apt-get ...", flush=True)
        # Lists may be missing, or so old that what they name is gone.
        _works([*apt, "update"])
        if not _works([*installing, SHELL]) and not _works([*installing, "chromium"], quiet=False):
            print(error, file=sys.stderr)
            return 1
    return 0


def _works(command: list[str], *, quiet: bool = True) -> bool:
    output = subprocess.DEVNULL if quiet else None
    try:
        return (
            subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, check=False).returncode == 0
        )
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
