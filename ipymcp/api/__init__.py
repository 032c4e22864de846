"""The Python interface: tools as functions, servers, resources and prompts as objects."""
