"""Try ipymcp with many servers of others, and write what came of it to docs/interoperability.md.

    python -m tests.interop                      all of them, and the page
    python -m tests.interop '*chart' mcp-proxy   those, without the page

One line for each server and transport. The exit status is not 0 if one is not as it should be.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatch

from tests.environments import ROOT
from tests.interop.candidates import CANDIDATES, EVERYTHING, Candidate
from tests.interop.page import page
from tests.interop.run import Row, try_features, try_out

PAGE = ROOT / "docs" / "interoperability.md"


def main(patterns: Sequence[str]) -> int:
    """Try out what the patterns select, all if there are none. Give the exit status."""
    started = time.monotonic()
    selected = [each for each in CANDIDATES if not patterns or any(fnmatch(each.package, one) for one in patterns)]
    rows = [_tried(candidate) for candidate in selected]
    features = {each.transport: try_features(each) for each in selected if each.package == EVERYTHING}
    for transport, outcomes in features.items():
        for name, outcome in outcomes.items():
            print(f"everything over {transport:<5}: {name:<30} {outcome}", flush=True)
    if not patterns:
        PAGE.write_text(page(rows, features))
    bad = sum(bool(row.problem) for row in rows)
    bad += sum(outcome != "yes" for outcomes in features.values() for outcome in outcomes.values())
    print(f"\n{len(rows)} servers and transports, {bad} not as they should be, {time.monotonic() - started:.0f} s")
    return 1 if bad or not rows else 0


def _tried(candidate: Candidate) -> Row:
    row = try_out(candidate)
    print(row, flush=True)
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", metavar="PACKAGE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYMCP_STATE_DIR"] = folder  # what is remembered of servers is nobody's but this run's
        status = main(parser.parse_args().patterns)
    sys.exit(status)
