"""Third-party servers over their transports; `make interop` runs all, and writes docs/interoperability.md."""
