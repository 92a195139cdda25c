"""Facts of a row query, of its operators and of its queues, for SHOW and the control table."""

from __future__ import annotations

from collections.abc import Iterable

from shedder.dataflow.graph_text import label_text
from shedder.dataflow.joins.arriving_side import Unmatched
from shedder.dataflow.operator_facts import OperatorFacts
from shedder.engine.dataflow.row_precision import RowPrecision
from shedder.engine.dataflow.row_query import RowQuery


def row_status(query: RowQuery) -> dict[str, str]:
    """Return the facts of DESCRIBE and of the control table, by property."""
    join = query.sampled_join
    return {
        **relations_of(query),
        "stream": ", ".join(query.streams),  # In place of `streams`, for programs that read it.
        "text": query.query.text,
        "rows": str(query.output.rows),
        "kept_bytes": str(query.output.size_bytes),
        "late": str(sum(each.late for each in query.inputs)),
        "size_bytes": str(query.size_bytes),
        **_precision_facts(query),
        **({} if join is None else {"bytes": str(join.bytes_max)}),
        **({} if query.unmatched is None else _unmatched(query.unmatched)),
        "failed": query.failed,
    }


def relations_of(query: RowQuery) -> dict[str, str]:
    """Return the names of the streams, and of the tables if there are any, by kind."""
    found = {"streams": ", ".join(query.streams)}
    tables = ", ".join(sorted(query.table_names))
    return found | ({"tables": tables} if tables else {})


def _precision_facts(query: RowQuery) -> dict[str, str]:
    """Return the level and the precision of a query with ON OVERLOAD SHED; of others nothing."""
    if query.thinning is None:
        return {}
    found = RowPrecision.at(query.thinning.level)
    return {
        "level": str(found.level),
        "weight": str(query.weight),
        "predicted_fn": str(found.false_negatives),
        "predicted_fp": str(found.false_positives),
    }


def _unmatched(counts: Unmatched) -> dict[str, str]:
    return {"unmatched": str(counts.missing), "ambiguous": str(counts.ambiguous)}


def operator_status(
    name: str, operators: Iterable[OperatorFacts]
) -> list[tuple[str, str, dict[str, str]]]:
    """Return the facts of operators and queues for the control table: (entity, name, properties).

    An operator's name is that of the query and its number; `inputs` are numbers of others.
    """
    found: list[tuple[str, str, dict[str, str]]] = []
    for number, each in enumerate(operators):
        ns = each.ns_per_row
        facts = {
            "operator": each.text,
            "inputs": ", ".join(map(str, each.inputs)),
            "rows_leave": label_text(each.pattern),
            "rows_in": str(each.rows_in),
            "rows_out": str(each.rows_out),
            "size_bytes": str(each.size_bytes),
            "ns_per_row": "" if ns is None else f"{ns:.1f}",
            "shared_with": ", ".join(each.others),
        }
        found.append(("operator", f"{name}/{number}", facts))
        if each.alias is not None:
            waiting = {
                "waiting_rows": str(each.rows_in - each.rows_out),
                "size_bytes": str(each.size_bytes),
            }
            found.append(("queue", f"{name}/{each.alias}", waiting))
    return found
