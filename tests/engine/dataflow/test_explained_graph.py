"""EXPLAIN of a row query and the control table: operators, queues, and their bytes."""

from __future__ import annotations

import re
from contextlib import contextmanager
from random import Random

import pytest

from shedder.engine.engine import Engine
from shedder.errors import ShedderError
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.plan_lines import plan_table
from shedder.queries.answers.text_format import printed
from tests.engine.dataflow.worlds import CREATE, PICKED, START_US, batch, subscribed
from tests.seeds import seed

HOUR = "[RANGE INTERVAL '1' HOUR]"
PAIRS = f"SELECT a.id, b.kind FROM s {HOUR} a JOIN s {HOUR} b ON a.id = b.id"


@pytest.fixture
def db(tmp_path):
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE)
        yield db


def cells(lines, name):
    """The cells of the line of an operator: label, rows, bytes, ns."""
    [line] = [line for line in lines if line.lstrip("├└│ ").startswith(name)]
    return re.split(r"  +", line.strip())[1:]


def test_explain_has_a_line_for_each_operator_and_all_bytes(db):
    query = db.register("q", PAIRS)
    db.push("s", batch([(0, 1, 5), (1, 1, 6), (2, 2, 5), (900, 3, 5)]))
    db.heartbeat("s", START_US + 500)
    lines = query.explain().splitlines()
    assert lines == db.execute("EXPLAIN q").table["plan"].to_pylist()
    graph = lines[lines.index("") + 1 :]
    assert cells(graph, "Join a.id = b.id")[:2] == ["WK", "5"]  # 2 · 2 + 1 pairs.
    assert cells(graph, "s AS a, b")[:2] == ["MONOTONIC", "3"]
    assert cells(graph, "Kept rows")[0] == "5"


def controls(db, entity):
    """The control table's rows of an entity: {name: {key: value}}."""
    found: dict[str, dict[str, str]] = {}
    for row in db.control(entity).to_pylist():
        found.setdefault(row["name"], {})[row["key"]] = row["value"]
    return found


def test_control_table_has_operators_and_queues_that_sum_to_the_query(db):
    db.register("q", PAIRS)
    db.push("s", batch([(0, 1, 5), (1, 1, 6), (2, 2, 5), (900, 3, 5)]))
    db.heartbeat("s", START_US + 500)
    operators, queues = controls(db, "operator"), controls(db, "queue")
    assert [each["operator"] for each in operators.values()][-3:] == [
        "Current relation",
        "ISTREAM",
        "Kept rows",
    ]
    whole = int(controls(db, "query")["q"]["size_bytes"])
    assert sum(int(each["size_bytes"]) for each in operators.values()) == whole
    assert {name: each["waiting_rows"] for name, each in queues.items()} == {"q/a": "1"}
    assert operators["q/0"]["rows_leave"] == "MONOTONIC"
    [pairs] = [each for each in operators.values() if each["operator"] == "Join a.id = b.id"]
    assert (pairs["rows_in"], pairs["rows_out"], pairs["rows_leave"]) == ("6", "5", "WK")
    left, right = (operators[f"q/{at}"] for at in pairs["inputs"].split(", "))
    assert left["operator"] == "Project a.id"
    assert right["operator"] == "Project a.id AS b.id, a.kind AS b.kind"
    assert left["inputs"] == right["inputs"]  # One window for both aliases.
    assert operators[f"q/{left['inputs']}"]["operator"] == "Window [RANGE INTERVAL '1' HOUR]"


def operators_of(rows):
    return [row["value"] for row in rows if row["granted"].startswith("operator ")]


@pytest.mark.parametrize("created", ["QUERY q", "VIEW v RETAIN 1 DAY"])
def test_explain_of_a_query_to_be_shows_its_operators_and_when_rows_leave(db, created):
    explained = db.execute(f"EXPLAIN CREATE {created} AS {PAIRS}").rows()
    into = {"granted": "inserts into", "value": "v (id, kind, _ts)"}
    assert (into in explained) == created.startswith("VIEW")
    assert operators_of(explained) == [
        "Kept rows: at most 8,388,608 bytes",
        "ISTREAM: MONOTONIC, unknown rate",
        "Current relation: WK, unknown rate",
        "Project a.id, b.kind: WK, 0 bytes",
        "Join a.id = b.id: WK, unknown rate",
        "├ Project a.id: WKS, 0 bytes",
        "│ (1) Window [RANGE INTERVAL '1' HOUR]: WKS, 0 bytes",
        "│ s AS a, b, rows kept by id: MONOTONIC, unknown rate",
        "└ Project a.id AS b.id, a.kind AS b.kind: WKS, 0 bytes",
        "  (1) as above",
    ]
    assert db.execute("SHOW QUERIES").rows() == []
    assert db.execute("SHOW VIEWS").rows() == []


def test_explain_of_a_query_to_be_expects_the_bytes_that_it_will_hold(db):
    dice = Random(seed("expected bytes"))

    def push(first):
        times = range(first, first + 2_000)
        db.push("s", batch([(at, dice.randrange(500), dice.randrange(7)) for at in times]))

    push(0)
    text = "SELECT a.id, b.kind FROM s {0} a JOIN s {0} b ON a.id = b.id AND b.kind > 4"
    text = text.format("[RANGE INTERVAL '0.002' SECOND]")
    expected = {}
    for line in operators_of(db.execute(f"EXPLAIN CREATE QUERY q AS {text}").rows()):
        name, _, facts = line.rpartition(": ")
        expected[name.lstrip("├└│ ")] = facts.removesuffix(" bytes").rpartition(", ")[2]
    db.register("q", text)
    for first in range(2_000, 14_000, 2_000):
        push(first)
    db.heartbeat("s", START_US + 14_000)
    held = {each.text: each.size_bytes for each in db.core.rows.queries["q"].operators()}
    for name in ("Join a.id = b.id", "Current relation", "ISTREAM"):
        size = int(expected[name].replace(",", ""))
        assert held[name] / 2 <= size <= 2 * held[name], (name, size, held[name])


def test_explain_of_an_insert_to_be_shows_the_operators_of_its_query(db):
    db.execute("CREATE STREAM t (at TIMESTAMP, n BIGINT, id BIGINT) TIMESTAMP BY at")
    select = "SELECT ts, id FROM s WHERE kind > 2"
    explained = db.execute(f"EXPLAIN CREATE QUERY q AS INSERT INTO t (at, id) {select}").rows()
    assert {"granted": "inserts into", "value": "t (at, id)"} in explained
    operators = operators_of(db.execute(f"EXPLAIN CREATE QUERY q AS {select}").rows())
    assert operators_of(explained) == operators
    assert operators[-1] == "s: MONOTONIC, unknown rate"
    assert db.execute("SHOW QUERIES").rows() == []


def test_explain_of_a_view_or_insert_refuses_what_creating_it_refuses(db):
    db.execute("CREATE VIEW v AS SELECT id FROM s")
    for created, error in (
        ("VIEW w AS SELECT id AS __live FROM s", "a view has no column '__live'"),
        ("QUERY q AS INSERT INTO v SELECT id, ts FROM s", "'v' is a view"),
        ("QUERY q AS INSERT INTO s SELECT * FROM s", "would come back"),
        ("QUERY q AS INSERT INTO s (id) SELECT id FROM v", "needs a value of"),
    ):
        for text in (f"CREATE {created}", f"EXPLAIN CREATE {created}"):
            with pytest.raises(ShedderError, match=error):
                db.execute(text)


def test_failed_query_has_no_operators(db):
    query = db.register("q", PICKED)
    db.core.rows.queries["q"].fail("it was told to")
    assert "failed: it was told to" in query.explain()
    assert controls(db, "operator") == controls(db, "queue") == {}


def test_plan_is_printed_as_its_lines_and_only_long_lines_are_wrapped(db):
    text = "a plan\n\n  text: SELECT id, kind FROM s\n├ Window"
    answer = Answer(plan_table(text))
    assert printed(answer) == text
    assert printed(answer, 24) == ("a plan\n\n  text: SELECT id, kind\n      FROM s\n├ Window")
    db.register("q", PAIRS)
    assert str(db.execute("EXPLAIN q")) == db.query("q").explain()


def test_plan_of_more_lines_than_an_answer_prints_is_printed_whole():
    assert len(printed(Answer(plan_table("line\n" * 80))).splitlines()) == 80


def assert_same_facts(preview, explained):
    """EXPLAIN of a query to be has the inputs and choices of the query that is registered."""
    is_fact = re.compile(r"  (join order|negation of |\w+: stream )")
    lines = [line for line in explained.splitlines() if is_fact.match(line)]
    stated = [
        f"  {row['granted'].removeprefix('input ')}: {row['value']}"
        for row in preview
        if re.match("join order|negation of|input ", row["granted"])
    ]
    assert stated == [re.sub("; (nothing has come|as of).*", "", line) for line in lines]
    assert len(stated) > 3


STEPS = {"fast": 1, "steady": 50, "slow": 100}


@contextmanager
def registered_before_and_after(directory, text):
    """An engine with a query that was registered before its streams had tuples, and after."""
    with Engine.open(directory) as db:
        for name in STEPS:
            db.execute(CREATE.replace(" s ", f" {name} "))
        early = db.register("early", text)
        assert not re.search("join order|negation of", early.explain())
        for name, step in STEPS.items():
            db.push(name, batch([(at, at % 7, at) for at in range(0, 1_000, step)]))
        preview = db.execute(f"EXPLAIN CREATE QUERY late AS {text}").rows()
        late = db.register("late", text)
        assert_same_facts(preview, late.explain())
        for name in STEPS:
            db.heartbeat(name, START_US + 2_000)
        yield db, early, late


def test_negation_stands_where_it_costs_less_and_rows_do_not_depend_on_it(tmp_path):
    text = (
        "SELECT a.id, a.kind, b.kind AS other FROM fast [RANGE INTERVAL '1' HOUR] a "
        "JOIN steady [RANGE INTERVAL '1' HOUR] b ON a.id = b.id WHERE NOT EXISTS "
        "(SELECT * FROM slow [RANGE INTERVAL '1' HOUR] c WHERE c.id = a.id AND c.kind < 300)"
    )
    with registered_before_and_after(tmp_path / "data", text) as (_, early, late):
        [place] = [line for line in late.explain().splitlines() if "negation of c" in line]
        assert re.fullmatch(
            r"  negation of c: below the join; [\d,]+ rows/s, [\d,]+ above it", place
        )
        absent = {0, 100 % 7, 200 % 7}
        pairs = [
            (x % 7, x, y)
            for x in range(1_000)
            for y in range(0, 1_000, 50)
            if x % 7 == y % 7 and x % 7 not in absent
        ]
        for query in (early, late):
            rows = [tuple(row.values()) for row in query.answer().table.to_pylist()]
            assert sorted(rows) == sorted(pairs)


def test_joins_of_three_streams_are_ordered_by_cost_and_rows_do_not_depend_on_it(tmp_path):
    text = (
        "SELECT a.id, a.kind AS x, b.kind AS y, c.kind AS z FROM fast [RANGE INTERVAL '1' HOUR] a "
        "JOIN steady [RANGE INTERVAL '1' HOUR] b ON a.id = b.id "
        "JOIN slow [RANGE INTERVAL '1' HOUR] c ON c.id = a.id WHERE c.kind > 100"
    )
    with registered_before_and_after(tmp_path / "data", text) as (_, early, late):
        [order] = [line for line in late.explain().splitlines() if "join order" in line]
        assert re.fullmatch(r"  join order: [abc], [abc], a; [\d,]+ comparisons/s, .*", order)
        cost, written = (int(n.replace(",", "")) for n in re.findall(r"[\d,]+(?= comp| as)", order))
        assert 0 < cost < written
        pairs = [
            (x % 7, x, y, z)
            for x in range(1_000)
            for y in range(0, 1_000, 50)
            for z in range(0, 1_000, 100)
            if x % 7 == y % 7 == z % 7 and z > 100
        ]
        rows = [tuple(row.values()) for row in late.answer().table.to_pylist()]
        assert sorted(rows) == sorted(pairs)
        first = subscribed(early)
        assert sorted(row[:4] for row in first) == sorted(pairs)
    with Engine.open(tmp_path / "data") as db:
        assert "join order: " in db.query("early").explain()
        assert subscribed(db.query("early")) == first


def test_joins_of_a_union_have_an_order_each_and_their_facts_have_numbers(tmp_path):
    join = (
        "SELECT {0}.id FROM fast [RANGE INTERVAL '1' HOUR] {0} "
        "JOIN steady [RANGE INTERVAL '1' HOUR] {1} ON {0}.id = {1}.id "
        "JOIN slow [RANGE INTERVAL '1' HOUR] {2} ON {2}.id = {0}.id"
    )
    text = f"{join.format(*'abc')} UNION ALL {join.format(*'def')}"
    with registered_before_and_after(tmp_path / "data", text) as (db, _, late):
        assert late.explain().count("join order") == 2
        granted = [row["granted"] for row in db.execute(f"EXPLAIN CREATE QUERY q AS {text}").rows()]
        assert [it for it in granted if it.startswith("join")] == ["join order", "join order 2"]


def test_table_of_a_join_is_a_line_with_its_bytes(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    query = db.register("q", "SELECT s.id, n.name FROM s JOIN t n ON s.id = n.id")
    db.push("s", batch([(0, 1, 5), (1, 1, 6), (2, 2, 5), (900, 3, 5)]))
    db.heartbeat("s", START_US + 1_000)
    graph = query.explain().splitlines()
    assert cells(graph, "Table join INNER ON s.id = n.id")[:2] == ["MONOTONIC", "3"]
    assert cells(graph, "table n")[0] == "2"
    whole = int(controls(db, "query")["q"]["size_bytes"])
    assert sum(int(each["size_bytes"]) for each in controls(db, "operator").values()) == whole


@pytest.mark.parametrize("window", ["", HOUR, "[PARTITION BY kind ROWS 2]"])
def test_explain_of_a_join_with_a_table_to_be_has_no_estimate_above_the_table(db, window):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    db.push("s", batch([(0, 1, 5), (1, 1, 6), (2, 2, 5), (900, 3, 5)]))
    text = f"SELECT s.id, n.name FROM s {window} JOIN t n ON s.id = n.id WHERE s.kind > 4"
    lines = operators_of(db.execute(f"EXPLAIN CREATE QUERY q AS {text}").rows())
    [join] = [line for line in lines if line.startswith("Table join")]
    assert join.endswith(", no estimate")
    assert sum(line.endswith(" s: MONOTONIC, 0 bytes") for line in lines) == 1
