"""The Jupyter server extension: connects panels to kernels, and delivers OAuth logins to the kernels that wait."""
