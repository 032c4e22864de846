"""Ways a message travels to a server and back."""
