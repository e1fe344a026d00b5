"""Wrong ideas about what people are told, and about who is signed in."""

from __future__ import annotations

from tests.mutants.levels import (
    APART_UNIT,
    CALLERS,
    FAR_WORKERS,
    FIELDS,
    ONE_JUDGEMENT,
    PLAIN_TEXT,
    QUEUES,
    SIGN_IN,
    SITUATION,
    WIRE,
    WORDS,
)
from tests.mutants.mutant import Mutant, Patch

SITUATION_VIEW = "oldhost_sync/api/situation.py"
TASK_QUEUE = "oldhost_sync/temporal/task_queue.py"
HOST_CHECKS = "oldhost_sync/relay/host_watch.py"
LAYOUT = "oldhost_sync/console/layout.py"

MUTANTS = (
    Mutant(
        "what Temporal says of a worker that is gone hides its own last report",
        (Patch(SITUATION_VIEW, "    if silence := worker_silence(workers):\n", "    if silence := worker_silence(()):\n"),),
        levels=(SITUATION,),
    ),
    Mutant(
        "a look that takes too long hides the reason that was known",
        (Patch("oldhost_sync/api/situation_reader.py", "before if before.trouble and seen.kind == SILENCE else seen", "seen"),),
        levels=(SITUATION,),
    ),
    Mutant(
        "a task queue whose tasks go to others is not told of",
        (Patch(TASK_QUEUE, "    if current is None or not current.deployment_name:\n", "    if True:\n"),),
        levels=(QUEUES,),
    ),
    Mutant(
        "a command that brings the tasks back names no deployment",
        (Patch(TASK_QUEUE, "{command} {shlex.quote(current.deployment_name)}", "{command}"),),
        levels=(QUEUES,),
    ),
    Mutant(
        "one look that finds a database far away is told",
        (Patch(HOST_CHECKS, "Fact(far.message, far.severity)", "Fact(far.message, far.severity, at_once=True)"),),
        levels=(FAR_WORKERS,),
    ),
    Mutant(
        "a database that is near again is told as far",
        (Patch(HOST_CHECKS, "        self.conditions.found(name, FAR, None", "        _ = far and self.conditions.found(name, FAR, None"),),
        levels=(FAR_WORKERS,),
    ),
    Mutant(
        "what waits apart is told of at its first try",
        (Patch("oldhost_sync/policy/machine/machine.py", "if entity is not None and tries > 1:", "if entity is not None:"),),
        levels=(APART_UNIT,),
    ),
    Mutant(
        "browsers may use plain HTTP after TLS",
        (Patch("oldhost_sync/console/door.py", "if self._layout.secure else []", "if False else []"),),
        levels=(SIGN_IN,),
    ),
    Mutant(
        "a cookie that another site has set is a sign-in",
        (Patch(LAYOUT, "HOST_PREFIX if self.secure else ''", "''"),),
        levels=(SIGN_IN,),
    ),
    Mutant(
        "who signs out stays signed in elsewhere",
        (Patch("oldhost_sync/console/sign_ins.py", "            access.end_session(connection, self._host, sign_in.digest)\n", ""),),
        levels=(SIGN_IN,),
    ),
    Mutant(
        "the words of a discarded change are ours",
        (Patch("oldhost_sync/api/access.py", '    "stale", "retry",', '    "stale", "discarded", "retry",'),),
        levels=(WORDS,),
    ),
    Mutant(
        "a surprising next nonce is told as it came",
        (Patch("oldhost_sync/drivers/http/oldhost.py", 'if host_json.is_whole(named) else "what is no number"', "if True else ''"),),
        levels=(WIRE,),
    ),
    Mutant(
        "JSON at the terminal is for programs alone",
        (Patch("oldhost_sync/cli/output.py", "plain_json(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))", "json.dumps(value, indent=2, ensure_ascii=False, default=_plain)"),),
        levels=(PLAIN_TEXT,),
    ),
    Mutant(
        "the list of hosts asks no writer",
        (Patch("oldhost_sync/api/routes/hosts.py", "observed(at, writer, Observation(condition)", "observed(at, Observation(), Observation(condition)"),),
        levels=(ONE_JUDGEMENT,),
    ),
    Mutant(
        "status says what the writer says of itself",
        (Patch("oldhost_sync/cli/status.py", "judge(observed(datetime.now(UTC), writer, condition,", "judge(observed(datetime.now(UTC), writer, Observation(),"),),
        levels=(ONE_JUDGEMENT,),
    ),
    Mutant(
        "a number in a JSON body may be true",
        (Patch("oldhost_sync/fields/scalar.py", "if type(value) is not int or not", "if not isinstance(value, int) or not"),),
        levels=(FIELDS,),
    ),
    Mutant(
        "a refused submission leaves its key free",
        (Patch("oldhost_sync/store/intake/change_recorder.py", "            connection.exec_driver_sql(TAKE_KEY, (*key, 0))\n", ""),),
        levels=(CALLERS,),
    ),
)  # fmt: skip
