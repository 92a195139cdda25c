"""NEXMark: events of an auction house, its queries in CQL and in SQL, and their speed."""
