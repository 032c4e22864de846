"""The Jupyter server extension: connects panels to kernels, and returns OAuth logins to the kernel that began them."""
