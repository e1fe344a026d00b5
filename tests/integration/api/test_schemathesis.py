"""Generated requests, right and wrong, by each kind of token: no 5xx, no answer that the OpenAPI document lacks;
what the document allows is taken, and what it does not allow is refused.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
DATA_CHECKS = {GenerationMode.POSITIVE: positive_data_acceptance, GenerationMode.NEGATIVE: negative_data_rejection}
EXAMPLES = 10
# Rules that a JSON schema can't tell, or only for one version of Unicode; descriptions and docs/fields.md do.
UNTOLD = (
    "beyond 64 bit", "that no double holds", "days ahead", "nests deeper", "bytes of JSON", "must be a time with",
    "is not a cursor", "cursor-unknown", "Idempotency-Key", "idempotency-key-reused", "the same idempotency_key",
    "printable characters", "exceeds", "duration_s", "emergency_share", "debounce_s", "are planned here",
    "at least one field of the filter",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("one_plan")
@pytest.mark.timeout(600)  # 10 s of CPU each
@pytest.mark.parametrize("token", ["shop", "vera", "anna"])
@pytest.mark.parametrize(("mode", "operations_min"), [(GenerationMode.POSITIVE, 24), (GenerationMode.NEGATIVE, 18)])
def test_no_generated_request_is_answered_beside_the_document(
    address: str, anna: httpx.Client, mode: GenerationMode, operations_min: int, token: str
) -> None:
    schema = schemathesis.openapi.from_dict(anna.get("/openapi.json").json())
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    operations = [each for each in found if not each.path.endswith("/events")]  # its answer does not end
    failures: list[str] = []
    tested = sum(ask_generated(operation, address, mode, token, failures) for operation in operations)
    assert not failures, "\n\n".join(failures)
    assert tested >= operations_min


def ask_generated(operation: Any, address: str, mode: GenerationMode, token: str, failures: list[str]) -> bool:
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
        response = case.call(base_url=address, headers={"Authorization": f"Bearer {token}"})
        is_untold = response.status_code in (410, 422) and any(words in response.text for words in UNTOLD)
        is_decided_alone = response.status_code == 207  # each item has a result of its own
        checks = CHECKS if is_untold or is_decided_alone else [*CHECKS, DATA_CHECKS[mode]]
        case.validate_response(response, checks=checks)

    try:
        ask()
    except Unsatisfiable:
        return False
    except FailureGroup as failed:
        failures.append(f"{operation.label}: {failed}")
    return True
