"""Judges single messages, a line each. Runs in the environment that holds the official wire types.

Reads `[kind, revision, method, message]` as JSON and answers with what is wrong, or null. See `Specification.fault`.
"""

from __future__ import annotations

import json
import sys

from specification import Specification

specification = Specification()
for line in sys.stdin:
    print(json.dumps(specification.fault(*json.loads(line))), flush=True)
