"""All SQL of the product. MariaDB is the truth about changes and nonces."""
