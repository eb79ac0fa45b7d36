"""Services: instances register, are found dead, and are discovered (RIP-23)."""
