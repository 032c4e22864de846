"""Finds Chromium, and as a program installs it where it is missing: `python -m tests.browser.chromium`."""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no windows, and takes two thirds of the time to load JupyterLab."""
PACKAGE = "chromium"
ARGUMENTS = ["--no-sandbox"]
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
    """Install it if it is missing, and if that is allowed here; give the exit status."""
    try:
        find()
    except FileNotFoundError as error:
        root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        if not shutil.which("apt-get") or (root and not _works([*root, "true"])):
            print(error, file=sys.stderr)
            return 1
        print(f"{PACKAGE}: installing it by apt-get ...", flush=True)
        apt = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
        installing = [*apt, "install", "-y", "--no-install-recommends", PACKAGE]
        # Lists may be missing, or so old that what they name is gone.
        if not _works(installing) and not (_works([*apt, "update"]) and _works(installing, quiet=False)):
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
