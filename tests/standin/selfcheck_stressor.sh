#!/bin/bash
# Part of selfcheck.sh: the stressor.
#
# shellcheck disable=SC2154 # out is set by selfcheck.sh

# Some keys of the last line of `stressor OPTION...`. Sums that do not add up are printed instead.
stressor() { # KEYS OPTION...
    "$out/stressor" "${@:2}" </dev/null 2>&1 | tail -n 1 | python3 -c '
import json, sys
said = json.loads(sys.stdin.read())
rows = [said, *said["processes"]]
for whole, parts in [(said, said["processes"]), *((p, p["threads"]) for p in said["processes"])]:
    for key in ("allocs", "alloc_bytes", "frees", "freed_bytes", "failed", "calls", "live"):
        if whole[key] != sum(part[key] for part in parts):
            print("the parts of", key, "do not add up:", end=" ")
if said["live_bytes"] != said["alloc_bytes"] - said["freed_bytes"]:
    print("live_bytes:", end=" ")
print(*(f"{key}={said[key]}" for key in sys.argv[1].split()))' "$1"
}

# A signal that comes when it is ready stops it, and it prints its totals.
stressor_signalled() { # SIGNAL OPTION...
    coproc STRESSOR { exec "$out/stressor" --duration 0 --wait "${@:2}"; }
    local stressor=$STRESSOR_PID ready line status
    exec 3<&"${STRESSOR[0]}" 4>&"${STRESSOR[1]}"
    read -r ready <&3
    echo >&4
    kill -s "$1" "$stressor"
    read -r line <&3
    exec 3<&- 4>&-
    wait "$stressor"
    status=$?
    echo "${ready%% *} $(grep -o '"ended_by": "[A-Z]*"' <<<"$line") $status"
}

check_stressor() {
    check "stressor: links" libcudart.so.12 "$(needed "$out/stressor")"
    check "stressor: everything is freed" "calls=2000 allocs=1000 frees=1000 live_bytes=0 ended_by=done" \
        "$(stressor "calls allocs frees live_bytes ended_by" --throughput 0 --calls 2000)"
    check "stressor: nothing is freed" "calls=1000 frees=0 live_bytes=4096000" \
        "$(stressor "calls frees live_bytes" --throughput 0 --calls 1000 --free-ratio 0 --allocate-size 4K)"
    check "stressor: a part is freed" "allocs=801 frees=200 failed=0" \
        "$(stressor "allocs frees failed" --throughput 0 --calls 1001 --free-ratio 0.25)"
    check "stressor: a duration" "ended_by=duration failed=0" \
        "$(stressor "ended_by failed" --throughput 1000 --duration 0.2)"
    check "stressor: processes and threads" "calls=10001 allocs=5003 frees=4998" \
        "$(stressor "calls allocs frees" --throughput 0 --procs 3 --threads 2 --calls 10001)"
    check "stressor: memory runs out" "failed=1000 allocs=0" \
        "$(STANDIN_DEVICE_BYTES=4096 stressor "failed allocs" --throughput 0 --calls 1000)"
    check "stressor: the anomaly" "calls=200 live=2 live_bytes=2208301056" \
        "$(stressor "calls live live_bytes" --throughput 0 --threads 4 --calls 200 \
            --allocate-size 10M --anomaly-mb 2096 --anomaly-thread 2)"
    check "stressor: SIGINT" 'ready "ended_by": "SIGINT" 0' "$(stressor_signalled INT)"
    check "stressor: SIGTERM, processes" 'ready "ended_by": "SIGTERM" 0' \
        "$(stressor_signalled TERM --procs 2)"
    check "stressor: an option that is none" 2 "$("$out/stressor" --nonsense 2>/dev/null; echo $?)"
    check "stressor: a value out of range" 2 \
        "$("$out/stressor" --free-ratio 2 2>/dev/null; echo $?)"
}
