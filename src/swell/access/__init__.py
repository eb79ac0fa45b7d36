"""Who may do what: roles of certificates, tokens and their grants (docs/protocols/access.md)."""
