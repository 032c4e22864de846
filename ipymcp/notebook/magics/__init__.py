"""The `%mcp` magics, one file a subcommand."""
