"""What ipymcp costs, measured beside a floor client, the official SDK and its peers in one interleaved run."""
