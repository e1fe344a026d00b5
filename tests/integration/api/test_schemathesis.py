"""Generated requests, right and wrong: no 5xx, and no answer that the OpenAPI document does not name."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 10


@pytest.mark.slow
@pytest.mark.usefixtures("one_plan")
@pytest.mark.timeout(600)  # 10 s of CPU each
@pytest.mark.parametrize(("mode", "operations_min"), [(GenerationMode.POSITIVE, 24), (GenerationMode.NEGATIVE, 18)])
def test_no_generated_request_is_answered_beside_the_document(
    address: str, anna: httpx.Client, mode: GenerationMode, operations_min: int
) -> None:
    schema = schemathesis.openapi.from_dict(anna.get("/openapi.json").json())
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    tested = sum(ask_generated(operation, address, mode) for operation in operations)
    assert tested >= operations_min


def ask_generated(operation: Any, address: str, mode: GenerationMode) -> bool:
    """Ask one operation; False when nothing about it can be wrong (it takes neither parameters nor a body)."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        response = case.call(base_url=address, headers={"Authorization": "Bearer anna"})
        case.validate_response(response, checks=CHECKS)

    try:
        ask()
    except Unsatisfiable:
        return False
    return True
