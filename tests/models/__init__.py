"""What tests run in the environment `models`, beside the libraries that models are asked with."""
