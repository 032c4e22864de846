"""Setting servers up: what a line or a call names is read, added, edited, loaded, and restored after a restart."""
