"""What people and programs may ask of a node: status, members, the overlay, ping, broadcast."""
