"""The only place that parses bytes from the network."""
