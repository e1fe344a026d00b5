"""How busy OldHost is kept if MariaDB is far from the product's processes: each round trip costs its time."""

from __future__ import annotations

from bench import busy
from bench.far_database import FarDatabase
from bench.result import Result
from bench.stage import Stage

LATENCY_MS = 400
EACH_WAY_MS = (5, 25, 100)
BUSY_MIN = {5: 99, 25: 97, 100: 90}


def measure(stage: Stage) -> Result:
    result = Result(
        "distance",
        "OldHost's use if MariaDB is far away",
        conditions=[
            f"the product alone, its backlog's window at {LATENCY_MS} ms",
            "a proxy holds back each packet between its processes and MariaDB, as long each way",
        ],
    )
    rows = []
    for each_way_ms in EACH_WAY_MS:
        with FarDatabase(stage.mariadb.port, each_way_ms) as way:
            window = busy.product(stage, LATENCY_MS, way=way)
        rows.append((f"{each_way_ms} ms each way", 100 * window.busy_share, window.per_second))
        what = f"OldHost busy at {LATENCY_MS} ms, MariaDB {each_way_ms} ms away each way"
        result.target(what, 100 * window.busy_share, ">=", BUSY_MIN[each_way_ms], "%")
    result.table("", ("MariaDB", "OldHost busy, %", "operations a second"), rows)
    return result
