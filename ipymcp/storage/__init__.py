"""What outlives the kernel: known servers and their catalogs, secrets, logins. One file, shared by all kernels."""
