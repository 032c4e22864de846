"""JSON Schema for people: signatures, coercion and validation of arguments."""
