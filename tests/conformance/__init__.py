"""The official conformance suite for clients, run against ipymcp: `make conformance`."""
