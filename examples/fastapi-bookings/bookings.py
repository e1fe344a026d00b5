"""Bookings of which OldHost learns: FastAPI and SQLAlchemy. docs/applications.md goes through it."""

import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert, select
from sqlalchemy.engine import Engine

from oldhost_sync import InvalidChange, record_change
from oldhost_sync.http_client import SyncClient

metadata = MetaData()
bookings = Table(
    "bookings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("unit", String(64)),
    Column("guest", String(64)),
)


class Booking(BaseModel):
    unit: str
    guest: str


def create_app(engine: Engine, sync: SyncClient) -> FastAPI:
    app = FastAPI(title="Bookings")
    metadata.create_all(engine)

    @app.post("/bookings", status_code=201)
    def book(booking: Booking) -> dict[str, Any]:
        with engine.begin() as connection:  # the booking and its change, both or neither
            made = connection.execute(insert(bookings).values(booking.model_dump())).inserted_primary_key
            number = made[0] if made else 0
            record_change(
                connection, schema="oldhost_sync", host="oldhost", entity_type="unit", entity_id=booking.unit,
                event_type="booking_created", payload={"booking": number}, idempotency_key=f"booking-{number}",
            )  # fmt: skip
        return {"id": number, **booking.model_dump()}

    @app.get("/bookings/{number}")
    def show(number: int, wait: float = 0.0) -> dict[str, Any]:
        """With `wait` once OldHost has it, or after so many seconds."""
        with engine.connect() as connection:
            row = connection.execute(select(bookings).where(bookings.c.id == number)).one_or_none()
        if row is None:
            raise HTTPException(404, "There is no such booking.")
        return {**row._asdict(), "oldhost": sync.wait(f"booking-{number}", seconds=wait).state}

    @app.exception_handler(InvalidChange)
    def refuse(_: Request, error: InvalidChange) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    return app


def running() -> FastAPI:
    """As `oldhost-sync up` runs it: `uvicorn bookings:running --factory`."""
    engine = create_engine(os.environ["BOOKINGS_DATABASE_URL"], pool_pre_ping=True)
    return create_app(engine, SyncClient(os.environ["BOOKINGS_SYNC_URL"], os.environ["BOOKINGS_SYNC_TOKEN"]))
