"""The `%mcp` magics, one module for each group of subcommands."""
