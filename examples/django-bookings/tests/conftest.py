"""Loads the test kit."""

import django
from django.conf import settings

pytest_plugins = ["oldhost_sync.testing"]

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    ROOT_URLCONF="bookings",
    ALLOWED_HOSTS=["testserver"],
    USE_TZ=True,
)
django.setup()
