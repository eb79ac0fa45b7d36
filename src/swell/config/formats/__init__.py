"""What a configuration is made of: validation, and edits of one path that touch nothing else."""
