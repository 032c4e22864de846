"""The interoperability run over servers of others: `make interop`, which writes docs/interoperability.md."""
