"""The hosts that this process serves, and the state of each."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field

from oldhost_sync.api.access.auth import READERS, adder, caller_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.host_apps import HOSTS
from oldhost_sync.api.host_list import list_of
from oldhost_sync.api.situation import Word


class ServedHost(BaseModel):
    """One host, as GET /api/hosts/{host}/situation judges it."""

    host: str = Field(examples=["oldhost"])
    state: str = Field(description=", ".join(Word), examples=["SENDING"])
    why: str = Field(description="What keeps the writer from sending, or what it does")
    oldest_waiting_at: datetime | None = Field(description="When its oldest waiting change was accepted")
    open_alerts: int


class ServedHosts(BaseModel):
    hosts: list[ServedHost] = Field(description="The hosts that the caller's token is for; SYNC_HOST first")


class HostRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._list = list_of(dependencies)

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "hosts")
        summary = "The hosts that are served, and the state of each"
        add("GET", f"/api/{HOSTS}", self.list, ServedHosts, summary, READERS, (405,))

    async def list(self, request: Request) -> ServedHosts:
        """All other paths also exist for each host: `/api/hosts/{host}/changes` is `/api/changes` of that host."""
        names = self._dependencies.hosts_for(caller_of(request).name)
        return ServedHosts(hosts=[ServedHost(**asdict(each)) for each in await self._list.lines(names)])
