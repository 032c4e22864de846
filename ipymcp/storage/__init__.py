"""Storage that outlives the kernel: known servers and catalogs, secrets, logins. One file for all kernels."""
