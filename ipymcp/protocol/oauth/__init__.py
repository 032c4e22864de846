"""Logging in to remote servers: OAuth 2.1 as MCP uses it, 2025-03-26 to 2026-07-28.

`provider.OAuth` is an `Authorizer` of the HTTP transports. It reaches the network only by the `Fetch` it is given, the
user only by a `LoginUser`, and what must be kept goes to a `TokenStore`.
"""
