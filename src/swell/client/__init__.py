"""Using a cluster: `session` is protocol code for both worlds, `facade` is for programs."""
