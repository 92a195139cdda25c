"""Nothing new gets a name that another engine cannot say: an empty one, or one with NUL."""

import pytest

import shedder
from shedder.errors import BadQuery, BadSetting
from shedder.overload.quotas import parse_quotas

STREAM = 'CREATE STREAM {} (ts TIMESTAMP, "{}" BIGINT) TIMESTAMP BY ts'
WINDOW = "[RANGE INTERVAL '1' HOUR SLIDE INTERVAL '1' HOUR]"


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with shedder.open(tmp_path_factory.mktemp("db")) as db:
        db.execute(STREAM.format("s", "v"))
        yield db


@pytest.mark.parametrize("name", ["", "a\0b"])
@pytest.mark.parametrize(
    "text",
    [
        STREAM.format('"{}"', "v"),
        STREAM.format("other", "{}"),
        'CREATE QUERY "{}" AS SELECT COUNT(*) AS n FROM s',
        'CREATE QUERY q AS SELECT COUNT(*) AS "{}" FROM s',
        f'CREATE ROLLUP "{{}}" AS SELECT COUNT(*) AS n FROM s {WINDOW}',
        f'CREATE ROLLUP r AS SELECT COUNT(*) AS "{{}}" FROM s {WINDOW}',
        'SELECT COUNT(*) AS "{}" FROM s',
    ],
)
def test_an_empty_name_and_one_with_nul_are_refused(db, text, name):
    with pytest.raises(BadQuery, match=r"empty name|NUL"):
        db.execute(text.format(name))
    assert db.execute("SHOW STREAMS").table.num_rows == 1
    assert db.execute("SHOW QUERIES").table.num_rows == 0


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_query_is_not_registered_under_such_a_name(db, name):
    with pytest.raises(BadQuery, match=r"empty name|NUL"):
        db.register(name, "SELECT COUNT(*) AS n FROM s")


@pytest.mark.parametrize("name", ["", "a\\u0000b", "ACME", "a b", "a" * 64])
def test_no_tenant_has_a_quota_under_such_a_name(name):
    with pytest.raises(BadSetting, match="a tenant cannot be named"):
        parse_quotas(f'[tenant."{name}"]\nqueries = 5\n')


@pytest.mark.parametrize("name", ["a\0b", "x" * 201, "\ud800"])
def test_a_producer_without_a_possible_name_is_refused(db, name):
    with pytest.raises(BadSetting, match="producer"):
        db.push("s", {"ts": []}, producer=name)
    with pytest.raises(BadSetting, match="producer"):
        db.producer("s", name)


def test_a_producer_that_numbers_its_pushes_has_a_name(db):
    with pytest.raises(BadSetting, match="cannot be named ''"):
        db.producer("s", "")
