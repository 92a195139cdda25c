"""The generated modules are what the sources generate."""

import importlib.util
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool

ROOT = Path(__file__).resolve().parents[2]


def load_generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_committed_modules_are_fresh(tmp_path):
    fresh = load_generator().generate(tmp_path)
    committed = ROOT / "shedder" / "v1"
    names = {path.name for path in committed.iterdir() if path.suffix in (".py", ".pyi")}
    assert names == {path.name for path in fresh}
    for path in fresh:
        assert (committed / path.name).read_text() == path.read_text(), path.name


def test_every_public_word_of_the_wire_is_documented():
    for source in (ROOT / "proto" / "shedder" / "v1").glob("*.proto"):
        lines = source.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.strip().startswith(("rpc ", "service ")):
                assert lines[number - 1].strip().startswith("//"), f"{source.name}: {line.strip()}"


def test_services_are_in_the_package_of_their_version():
    from shedder.v1 import backfill_pb2, control_pb2, ingest_pb2, query_pb2, synopses_pb2

    pool = descriptor_pool.Default()
    for module in (backfill_pb2, control_pb2, ingest_pb2, query_pb2, synopses_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            assert pool.FindServiceByName(service.full_name).file.package == "shedder.v1"
