"""CQL in colours: SQL's lexer, with the words that the language adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from pygments.lexers.sql import SqlLexer
from pygments.token import Keyword, Name, _TokenType


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a shell completes and colours beyond pygments' SQL; docs/cql.md has their meaning.
CQL_WORDS = _words(
    """ABSOLUTE ACTIVE ALLOCATION ARCHIVE COLLAPSE CONFIDENCE COSTING EXACT FAIL INACTIVE LATENESS
    OMIT PERCENT PRECISION QUERIES RANGE RANK RETAIN RETROACTIVE REWRITE SLIDE STREAM STREAMS TABLES
    TARGET THINNING UNBOUNDED WEIGHT WIDEN WITHIN"""
)
FUNCTIONS = _words(
    """AVG COUNT DISTINCT_BOTH DISTINCT_ONLY FREQUENT HISTOGRAM JACCARD MAX MEDIAN MIN QUANTILE
    STDDEV SUM TOP VAR
    DATE_TRUNC COALESCE EXTRACT REGEXP_EXTRACT SPLIT_PART STRFTIME SUBSTRING"""
)
SQL_WORDS = _words(
    """AND AS ASC BETWEEN BY CASE CAST CREATE DAY DELETE DESC DESCRIBE DISTINCT DROP ELSE END EXISTS
    EXPLAIN FALSE FROM GROUP HAVING HOUR IF IN INSERT INTERVAL INTO IS KEY LIKE LIMIT MINUTE NOT
    NULL OR ORDER PRIMARY QUERY REPLACE SECOND SELECT SET SHOW TABLE THEN TIMESTAMP TO TRUE UPDATE
    VALUES WHEN WHERE"""
)


class CqlLexer(SqlLexer):
    """SQL, and CQL's own words as keywords."""

    name: ClassVar[str] = "CQL"
    aliases: ClassVar[list[str]] = ["cql"]

    def get_tokens_unprocessed(
        self, text: str, stack: Iterable[str] = ("root",)
    ) -> Iterator[tuple[int, _TokenType, str]]:
        """Tokens of SQL, CQL's words promoted from names."""
        for at, token, value in super().get_tokens_unprocessed(text, stack):
            word = value.upper()
            if token is Name and word in CQL_WORDS:
                yield at, Keyword, value
            elif token is Name and word in FUNCTIONS:
                yield at, Name.Function, value
            else:
                yield at, token, value
