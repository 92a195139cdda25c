"""Random queries whose text means the same in CQL and in SQLite."""

from __future__ import annotations

import random
from dataclasses import dataclass

# Columns of every relation of a random query: few values, so that keys meet, repeat and miss.
COLUMNS = ("k", "v")
NAMES = ("p", "q", "r")

_COMPARISONS = ("=", "<>", "<", ">", "<=", ">=")


@dataclass
class Writer:
    """Writes one query; aliases are unique in it."""

    dice: random.Random
    aliases: int = 0

    def query(self) -> str:
        """A query, sometimes two with a set operation between them."""
        if self.dice.random() < 0.25:
            width = self.dice.randint(1, 2)
            word = self.dice.choice(("UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
            return f"{self.select(width)} {word} {self.select(width)}"
        return self.select(self.dice.randint(1, 3))

    def select(self, width: int) -> str:
        """A query without set operations, of so many columns."""
        names, source, terms = self._with_commas() if self.dice.random() < 0.2 else self._from()
        where = self._where(names, terms)
        if self.dice.random() < 0.3:
            return self._grouped(width, names, f"{source}{where}")
        distinct = "DISTINCT " if self.dice.random() < 0.3 else ""
        outputs = ", ".join(f"{self._value(names)} AS c{at}" for at in range(width))
        return f"SELECT {distinct}{outputs} FROM {source}{where}"

    def _grouped(self, width: int, names: list[str], rest: str) -> str:
        key = self._column(names)
        made = [self._aggregate(names) for _ in range(width)]
        grouped = self.dice.random() < 0.7
        if grouped:
            made[0] = key
        outputs = ", ".join(f"{each} AS c{at}" for at, each in enumerate(made))
        text = f"SELECT {outputs} FROM {rest}"
        if not grouped:
            return text
        text += f" GROUP BY {key}"
        if self.dice.random() < 0.4:
            text += f" HAVING {self._aggregate(names)} {self._comparison()} {self._constant()}"
        return text

    def _with_commas(self) -> tuple[list[str], str, list[str]]:
        """Aliases, relations of FROM without JOIN, and the conditions that connect them."""
        made = [self._relation() for _ in range(self.dice.choice((2, 3)))]
        names = [alias for alias, _ in made]
        terms = [
            f"{names[at]}.{self.dice.choice(COLUMNS)} = {self._column(names[:at])}"
            for at in range(1, len(names))
        ]
        self.dice.shuffle(made)
        return names, ", ".join(relation for _, relation in made), terms

    def _from(self) -> tuple[list[str], str, list[str]]:
        """Aliases, and the relations of FROM with their joins."""
        first, source = self._relation()
        names = [first]
        for _ in range(self.dice.choice((0, 0, 1, 1, 2))):
            alias, relation = self._relation()
            word = self.dice.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
            condition = f"{alias}.k = {self.dice.choice(names)}.{self.dice.choice(COLUMNS)}"
            names.append(alias)
            if self.dice.random() < 0.3:
                condition += f" AND {self._condition(names)}"
            source += f" {word} {relation} ON {condition}"
        return names, source, []

    def _relation(self) -> tuple[str, str]:
        alias = self._alias()
        if self.dice.random() < 0.8:
            return alias, f"{self.dice.choice(NAMES)} {alias}"
        inner = self._alias()
        distinct = "DISTINCT " if self.dice.random() < 0.5 else ""
        where = self._where([inner])
        text = f"SELECT {distinct}{inner}.v AS k, {inner}.k AS v FROM {self.dice.choice(NAMES)}"
        return alias, f"({text} {inner}{where}) {alias}"

    def _where(self, names: list[str], joins: list[str] | None = None) -> str:
        terms = [self._condition(names) for _ in range(self.dice.choice((0, 1, 1, 2)))]
        terms += joins or []
        if self.dice.random() < 0.4:
            terms.append(self._subquery(names))
        return f" WHERE {' AND '.join(terms)}" if terms else ""

    def _subquery(self, names: list[str]) -> str:
        alias = self._alias()
        word = self.dice.choice(("", "NOT "))
        source = f"{self.dice.choice(NAMES)} {alias}"
        correlated = self.dice.random() < 0.6
        where = f" WHERE {alias}.k = {self._column(names)}" if correlated else ""
        if correlated and self.dice.random() < 0.4:
            where += f" AND {alias}.v {self._comparison()} {self._column(names)}"
        match self.dice.randrange(3):
            case 0:
                return f"{word}EXISTS (SELECT {alias}.v AS c FROM {source}{where})"
            case 1:
                query = f"SELECT {alias}.v AS c FROM {source}{where}"
                return f"{self._column(names)} {word}IN ({query})"
            case _:
                where = f" WHERE {alias}.k = {self._column(names)}" if correlated else ""
                query = f"SELECT {self._aggregate([alias])} AS c FROM {source}{where}"
                return f"{self._column(names)} {self._comparison()} ({query})"

    def _condition(self, names: list[str]) -> str:
        column = self._column(names)
        match self.dice.randrange(5):
            case 0:
                return f"{column} IS {self.dice.choice(('', 'NOT '))}NULL"
            case 1:
                other = self._column(names)
                return f"({column} {self._comparison()} {other} OR {other} = {self._constant()})"
            case 2:
                return f"{column} IN ({self._constant()}, {self._constant()})"
            case _:
                return f"{column} {self._comparison()} {self._constant()}"

    def _value(self, names: list[str]) -> str:
        match self.dice.randrange(4):
            case 0:
                return f"{self._column(names)} + {self._column(names)}"
            case 1:
                return f"COALESCE({self._column(names)}, -1)"
            case _:
                return self._column(names)

    def _aggregate(self, names: list[str]) -> str:
        function = self.dice.choice(("COUNT", "SUM", "MIN", "MAX", "COUNT(DISTINCT", "COUNT(*)"))
        if function == "COUNT(*)":
            return function
        opening = f"{function} " if function.endswith("DISTINCT") else f"{function}("
        return f"{opening}{self._column(names)})"

    def _column(self, names: list[str]) -> str:
        return f"{self.dice.choice(names)}.{self.dice.choice(COLUMNS)}"

    def _comparison(self) -> str:
        return self.dice.choice(_COMPARISONS)

    def _constant(self) -> str:
        return str(self.dice.randrange(4))

    def _alias(self) -> str:
        self.aliases += 1
        return f"t{self.aliases}"
