"""Where topics live: what is known of their traffic and latency, and which should move."""
