"""One module a contender: a process that measures itself when the driver says so (see harness.py)."""
