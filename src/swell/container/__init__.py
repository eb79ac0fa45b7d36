"""A container of an application: it has its configurations, and passes them on to siblings."""
