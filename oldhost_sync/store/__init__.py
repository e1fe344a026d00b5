"""All statements for the product's tables. MariaDB is the source of truth for changes and nonces."""
