"""Bookings of which OldHost learns: Django, in one file. Its database is `DATABASES["default"]`."""

import json
from typing import Any

from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path

from oldhost_sync import InvalidChange, record_change
from oldhost_sync.http_client import SyncClient


class Booking(models.Model):
    unit = models.CharField(max_length=64)
    guest = models.CharField(max_length=64)

    class Meta:
        app_label = "bookings"

    def __str__(self) -> str:
        return f"{self.guest} in {self.unit}"


def book(request: HttpRequest) -> JsonResponse:
    given = json.loads(request.body)
    try:
        with transaction.atomic():  # the booking and its change, both or neither
            booking = Booking.objects.create(unit=given["unit"], guest=given["guest"])
            record_change(
                connection, schema="oldhost_sync", host="oldhost", entity_type="unit", entity_id=booking.unit,
                event_type="booking_created", payload={"booking": booking.pk}, idempotency_key=f"booking-{booking.pk}",
            )  # fmt: skip
    except InvalidChange as error:
        return JsonResponse({"detail": str(error)}, status=422)
    return JsonResponse({"id": booking.pk}, status=201)


def show(request: HttpRequest, number: int) -> JsonResponse:
    booking = get_object_or_404(Booking, pk=number)
    seconds = float(request.GET.get("wait", 0))
    fate = sync().wait(f"booking-{number}", seconds=seconds)
    return JsonResponse({"id": number, "unit": booking.unit, "oldhost": fate.state})


def sync() -> SyncClient:
    from django.conf import settings

    client: SyncClient = settings.SYNC_CLIENT
    return client


urlpatterns: list[Any] = [path("bookings", book), path("bookings/<int:number>", show)]
