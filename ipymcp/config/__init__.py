"""Server definitions: read, checked, found, edited and exported. Pure except for reading and writing files."""
