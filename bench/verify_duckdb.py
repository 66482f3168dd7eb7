"""The default properties and fifo in DuckDB, for traces with timestamps and without crashes: what we compare with.

    python bench/verify_duckdb.py TRACE      prints a JSON document: what was found, CPU seconds, peak memory

It needs nothing but duckdb (`pip install duckdb`), which amcast does not depend on. Order is judged by timestamps as a
certificate; a trace that has none, or in which a process crashed, is beyond this script.
"""

import json
import resource
import sys

import duckdb

QUERIES = {
    "integrity": """
        select count(*) from (select process, message from d group by all having count(*) > 1)
        union all select count(*) from d anti join m using (message)""",
    "validity": "select count(*) from d join m using (message) where not list_contains(m.dest, d.grp)",
    # One timestamp for each message, increasing along every process.
    "order": """
        select count(*) from (select message from d group by 1 having min(ts) <> max(ts))
        union all
        select count(*) from (select ts, lag(ts) over (partition by process order by seq) as before from d)
        where ts <= before""",
    # Every member of every destination delivered it.
    "agreement": """
        with due as (select message, sum(size) as due from (select message, unnest(dest) as grp from m)
                     join (select grp, count(distinct process) as size from d group by 1) using (grp) group by 1)
        select count(*) from due left join (select message, count(*) as got from d group by 1) using (message)
        where due <> coalesce(got, 0)""",
    "fifo": """
        select count(*) from (
            select d.seq, lag(d.seq) over (partition by d.process, m.process order by m.seq) as before
            from d join m using (message))
        where before > seq""",
}


def main(trace: str) -> None:
    database = duckdb.connect()
    database.execute("set threads to 2")
    database.execute(f"""create table d as select process, "group" as grp, seq, message, ts.time as ts
                         from read_parquet('{trace}/kind=deliver/*.parquet')""")
    database.execute(f"""create table m as select process, seq, message, dest
                         from read_parquet('{trace}/kind=multicast/*.parquet')""")
    found = {name: sum(row[0] for row in database.execute(query).fetchall()) for name, query in QUERIES.items()}
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"found": found, "cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss // 1024}))


if __name__ == "__main__":
    main(sys.argv[1])
