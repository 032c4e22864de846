"""Decisions about which servers may run and which tools may be called."""
