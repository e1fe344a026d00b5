"""How many statements and commits a database server has served, by its own count."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.engine import Engine


@dataclass(frozen=True, slots=True)
class Served:
    statements: int
    commits: int

    def since(self, before: Served) -> Served:
        return Served(self.statements - before.statements, self.commits - before.commits)


def served(engine: Engine) -> Served:
    """The whole server's counts so far; the private server has no other clients."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_commit')").all()
    found = {name: int(value) for name, value in rows}
    return Served(found["Questions"], found["Com_commit"])
