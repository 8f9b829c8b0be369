"""Checks of leak verdicts: leaks are reported with their line, and nothing else is, by `explain` and by the gate."""

import json
from collections import namedtuple

from children import SLOW_SECONDS
from expect import losses

# Longer than any growth needs to be a leak.
WATCHED_SECONDS = 65
# A leak of one tensor a step is called within so many seconds.
SOON_SECONDS = 15
LEAKED = 100

# What a program imports.
NEEDS = {name: name for name in ("transformers", "lightning", "jax", "cupy")} | {"jax_donated": "jax", "jax_kept": "jax"}
# A gpuprobe comes when these have warmed up.
CLEAN_LATE = ("training", "transformers", "lightning", "ddp", "jax", "jax_donated", "cupy", "lru")
# It starts these, which end by themselves.
CLEAN_STARTED = (
    *("pinned", "plans", "arena", "async_pool", "refused", "threads", "record_stream", "warm_up", "one_off"),
)
# In native programs what is not freed at their end is a leak, too.
CLEAN_NATIVE = ("plan_cache", "async_pool", "arena", "refused", "threads", "handles")
NATIVE_PAUSE_MS = 100
# The answer comes as soon as it is one.
LEAKS_SOON = ("step", "list", "hook", "beside", "pinned_kept", "jax_kept")
LEAKS_LATER = ("graphs", "cublas", "nccl", "slow")

Answer = namedtuple("Answer", "truth status report")


def leaks_of(report):
    """What the verdicts and the gate call leaks.

    >>> verdict = {"grade": "LEAK", "where": "a.py:3 f", "evidence": ["growing"]}
    >>> gate = {"leaks": [{"where": "a.py:3 f", "bytes": 5}]}
    >>> leaks_of({"explain": {"verdicts": [verdict, verdict | {"grade": "ok"}]}, "gate": gate})
    {'explain': ['a.py:3 f: growing'], 'the gate': ['a.py:3 f: 5 bytes']}
    """
    verdicts = (one for one in report["explain"]["verdicts"] if one["grade"] == "LEAK")
    return {
        "explain": [f"{one.get('where')}: {one['evidence'][0]}" for one in verdicts],
        "the gate": [f"{one['where']}: {one['bytes']} bytes" for one in report["gate"]["leaks"]],
    }


def explained(bench, commands, late=None):
    """{name: Answer} of programs that run at once, each explained by a gpuprobe of its own, which starts it.

    `late` has the options of a gpuprobe that comes when the program has warmed up.
    """
    env, late = bench.environment(), late or {}
    paths = {name: bench.directory / f"explain-{name}.json" for name in commands}

    def tracer(name, *arguments):
        explain = ("explain", "--fail-on", "leak", "--format", "json", "-o", str(paths[name]))
        return bench.start(bench.gpuprobe, *explain, *arguments, env=env)

    programs = {
        name: bench.start(*command, env=env) if name in late else tracer(name, "--", *command)
        for name, command in commands.items()
    }
    tracers = dict(programs)
    for name, options in late.items():
        pid = programs[name].truth("loop", 1, SLOW_SECONDS)["pid"]
        tracers[name] = tracer(name, "--pid", str(pid), *options)
    for name in commands.keys() - late.keys():
        # At its begin and at its end; programs in Python read nothing.
        programs[name].write("\n")
    answers = {}
    for name, program in tracers.items():
        status = program.wait(WATCHED_SECONDS + SLOW_SECONDS)
        report = json.loads(paths[name].read_text().splitlines()[-1])
        answers[name] = Answer(programs[name].truths()[-1], status, report)
    for name in late:
        programs[name].go()
    return answers


def compare(bench, name, answer):
    truth, status, report = answer
    leak = truth["leak"]
    bench.equal(f"{name}: exit status", LEAKED if leak else 0, status)
    found = leaks_of(report)
    for what, said in found.items():
        if leak:
            place = f"{leak['file']}:{leak['line']} "
            named = any(place in one for one in said)
            bench.equal(f"{name}: {place}is named by {what}, of {said[:5]}", True, named)
        else:
            bench.equal(f"{name}: leaks by {what}", [], said)
    seconds, rules = report["explain"]["watched_seconds"], report["gate"]["rules"]
    bench.figure(f"verdicts, {name}", f"after {seconds:.0f} s, {rules}: {found['explain'][:2]}; lost {losses(report)}")


def objects(bench, name, seconds, pause_ms):
    return [bench.program("objects"), name, str(round(seconds * 1000 / pause_ms)), str(pause_ms)]


def python(bench, names, *arguments):
    present = [name for name in names if name not in NEEDS or not bench.is_missing(NEEDS[name])]
    return {name: bench.script("explained.py", name, *arguments) for name in present}


def check_clean(bench):
    if bench.is_missing("torch"):
        return
    late = python(bench, CLEAN_LATE)
    native = {f"native {one}": objects(bench, one, WATCHED_SECONDS, NATIVE_PAUSE_MS) for one in CLEAN_NATIVE}
    commands = late | python(bench, CLEAN_STARTED, str(WATCHED_SECONDS)) | native
    duration = ("--duration", f"{WATCHED_SECONDS}s")
    for name, answer in explained(bench, commands, dict.fromkeys(late, duration)).items():
        compare(bench, name, answer)


def check_planted(bench):
    if bench.is_missing("torch"):
        return
    late = python(bench, (*LEAKS_SOON, *LEAKS_LATER))
    options = {name: () if name in LEAKS_SOON else ("--duration", f"{WATCHED_SECONDS + 10}s") for name in late}
    late["step, census"] = late["step"]
    options["step, census"] = ("--tensors", "census")
    # In the end Python frees what its modules hold.
    started = bench.script("explained.py", "step", str(WATCHED_SECONDS))
    answers = explained(bench, late | {"step, started": started}, options)
    for name, answer in answers.items():
        compare(bench, name, answer)
    soon = answers["step"].report["explain"]["watched_seconds"]
    bench.equal(f"one tensor a step is called within {SOON_SECONDS} s, after {soon:.1f} s", True, soon <= SOON_SECONDS)
