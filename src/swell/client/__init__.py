"""Using a cluster: `session*` and `store_session` are protocol code for both worlds; `connection`,
`blocking`, `dht` and `facade` are for programs."""
