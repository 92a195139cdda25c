"""The language: text to statements, statements to bound queries, expressions to values."""
