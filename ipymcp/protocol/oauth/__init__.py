"""Logins to remote servers: OAuth 2.1 as specified by MCP 2025-03-26 to 2026-07-28.

`provider.OAuth` is an `Authorizer` for the HTTP transports. Its interfaces to the outside are `Fetch` for the network,
`LoginUser` for the user, and `TokenStore` for tokens.
"""
