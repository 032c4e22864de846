"""Transports: send messages to a server and receive its messages."""
