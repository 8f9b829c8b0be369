# shellcheck shell=bash disable=SC2154 # `out` is selfcheck.sh's
# Checks of the stand-in CUPTI. Sourced by selfcheck.sh, whose functions it uses.

# The counter's output for PROGRAM with COMMANDS.
recorded() { # PROGRAM COMMANDS
    LD_LIBRARY_PATH="$out/cupti" CUDA_INJECTION64_PATH="$out/libcounter.so" \
        "$out/$1" -c "$2" </dev/null 2>&1 >"$out/cupti_stdout" | sed -n 's/^records //p'
}

# The counts of KIND...
recorded_of() { # COUNTS KIND...
    local counts=$1 kind text=
    shift
    for kind in "$@"; do
        text+=" $(tr ' ' '\n' <<<"$counts" | grep "^$kind=")"
    done
    echo "${text# }"
}

check_cupti() {
    local version counts program
    local work="module k; launch k 3; copy h2d 4096 2; copy d2h 100; set 64 5; alloc 512 2; free 0"
    # Copies, sets, kernels; memory, with that of copies and sets; copied bytes.
    local expected="1=3 2=5 10=3 49=9 bytes=8292 dropped=0"
    for version in 11.8 12.1 12.4 12.8 13.0 13.5; do
        counts=$(STANDIN_CUPTI_VERSION=$version recorded workload "$work")
        check "CUPTI $version: records" "$expected" \
            "$(recorded_of "$counts" 1 2 10 49 bytes dropped)"
    done
    for program in workload_static workload_driver workload_ptsz; do
        check "CUPTI: $program" "$expected" \
            "$(recorded_of "$(recorded "$program" "$work")" 1 2 10 49 bytes dropped)"
    done
    # One record of the runtime and one of the driver call within it, and none of the runtime
    # without it.
    counts=$(recorded workload "alloc 64; alloc 64")
    check "CUPTI: calls of the runtime" "5=2" "$(recorded_of "$counts" 5)"
    counts=$(recorded workload_driver "alloc 64; alloc 64")
    check "CUPTI: no calls of the runtime" "" "$(recorded_of "$counts" 5)"
    check "CUPTI: a device, and a context" "8=1 9=1" "$(recorded_of "$counts" 8 9)"
    counts=$(recorded workload "module k; stream; graph 3 5")
    check "CUPTI: kernels of graphs" "10=15" "$(recorded_of "$counts" 10)"
    counts=$(STANDIN_CUPTI_FAULTS=dropped=5 recorded workload_driver "set 64 100")
    counts=${counts##*dropped=}
    check "CUPTI: drops are counted" yes "$([ "${counts%% *}" -gt 20 ] && echo yes)"
    check "CUPTI: a misspelt fault" "stand-in CUPTI: STANDIN_CUPTI_FAULTS=draped: not understood" \
        "$(LD_PRELOAD="$out/cupti/libcupti.so.13" STANDIN_CUPTI_FAULTS=draped "$out/workload" 2>&1 </dev/null | head -1)"
    check "CUPTI: an unknown version" "stand-in CUPTI: STANDIN_CUPTI_VERSION=9: not understood" \
        "$(LD_PRELOAD="$out/cupti/libcupti.so.13" STANDIN_CUPTI_VERSION=9 "$out/workload" 2>&1 </dev/null | head -1)"
    check "CUPTI: links no CUDA" "" "$(needed "$out/cupti/libcupti.so.13")"
    check "CUPTI: with less in it" \
        "cuptiActivityEnable cuptiActivityFlushAll cuptiActivityGetNextRecord cuptiActivityRegisterCallbacks cuptiGetVersion" \
        "$(exports "$out/cupti_bare/libcupti.so.13" | xargs)"
    rm -f "$out/cupti_stdout"
}
