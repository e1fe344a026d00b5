"""What the benchmark makes of its figures: who is ahead, what a loss costs, what a month costs."""

import pytest

from bench.actions import month, parse_actions
from bench.lost_replies import Loss
from bench.report import ahead
from bench.result import Target


def target(measured: float, bound: str = "<=", **rivals: float) -> Target:
    return Target("a span", measured, bound, 1.0, "s", rivals)


def test_a_rival_is_ahead_where_less_is_better_and_it_has_less() -> None:
    assert ahead(target(1.0, plain=0.9, naive=2.0)) == "plain"


def test_a_rival_is_ahead_where_more_is_better_and_it_has_more() -> None:
    assert ahead(target(1.0, ">=", plain=0.9, naive=2.0)) == "naive"


def test_what_two_runs_of_the_same_thing_differ_by_is_level() -> None:
    assert ahead(target(1.0, plain=0.991)) == "no"


def test_where_no_rival_was_measured_nothing_is_said() -> None:
    assert ahead(target(1.0)) == "–"


def test_the_share_kept_is_the_same_measured_and_calculated() -> None:
    loss = Loss([1.5], operations=100, seconds=42.0, latency_ms=400)
    assert loss.kept == pytest.approx(loss.kept_with(0.01))


def test_without_losses_all_of_the_capacity_is_kept() -> None:
    assert Loss([9.0], operations=1, seconds=10.0, latency_ms=400).kept_with(0.0) == 1.0


def test_a_loss_costs_all_the_time_in_which_nothing_was_applied() -> None:
    assert Loss([0.5, 0.5], operations=20, seconds=10.0, latency_ms=400).cost_s == pytest.approx(1.0)


METRICS = """
action{action_type="command_ScheduleActivityTask",namespace="default",operation="x",service_name="history"} 12
action{action_type="grpc_SignalWithStartWorkflowExecution",namespace="default",service_name="frontend"} 3
action{action_type="grpc_StartWorkflowExecution",namespace="temporal_system",service_name="frontend"} 2
action_other{action_type="a",namespace="default"} 9
"""


def test_actions_are_counted_by_type_in_the_writers_namespace_only() -> None:
    assert parse_actions(METRICS) == {"ScheduleActivityTask": 12, "SignalWithStartWorkflowExecution": 3}


def test_a_million_actions_cost_fifty_dollars() -> None:
    per_operation = 1e6 / (2.5 * 3_600 * 744)
    assert month(2.5, per_operation, 0, 0).total == pytest.approx(50)


def test_histories_are_billed_open_and_kept() -> None:
    cost = month(2.5, 0, history_bytes=1_000, run_bytes=2e9)
    assert cost.active_storage == pytest.approx(744 * 0.042)
    assert cost.retained_storage == pytest.approx(2.5 * 86_400 * 7 * 1_000 / 1e9 * 744 * 0.00105)
