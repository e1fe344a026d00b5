"""All SQL of the product. MariaDB is the source of truth for changes and nonces."""
