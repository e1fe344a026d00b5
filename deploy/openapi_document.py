"""Prints the API's OpenAPI document, without a server: clients are made from it."""

from __future__ import annotations

import json
import sys

from oldhost_sync.api.app import create_app
from oldhost_sync.roles.api import build
from oldhost_sync.settings import Settings

if __name__ == "__main__":
    app = create_app(build(Settings(database_url="mysql+pymysql://nobody@127.0.0.1/nothing")))
    json.dump(app.openapi(), sys.stdout, indent=1, sort_keys=True)
