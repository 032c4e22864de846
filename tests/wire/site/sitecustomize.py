"""Runs at the start of every Python a test starts with `tests.wire.environment`: installs the tap there."""

import os

if os.environ.get("IPYMCP_TEST_WIRE"):
    import importlib.util
    import sys
    from pathlib import Path

    path = Path(__file__).resolve().parent.parent / "tap.py"
    spec = importlib.util.spec_from_file_location("ipymcp_test_wire_tap", path)
    tap = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tap
    spec.loader.exec_module(tap)
    tap.install(os.environ["IPYMCP_TEST_WIRE"])
