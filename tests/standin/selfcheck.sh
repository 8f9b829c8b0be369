#!/bin/bash
# Checks the stand-in CUDA and its workload by themselves, without any tracer:
# a test of the tracer is worth no more than the truth it compares with.
#
#   tests/standin/selfcheck.sh [OUT]
#
# Needs a C compiler, make and binutils. Exits 0 only if every check passed.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
out=$(realpath -m "${1:-build}")
passed=0
failed=0
unset STANDIN_DEVICES STANDIN_DEVICE_BYTES STANDIN_FREE_LINGER_NS LD_LIBRARY_PATH

# check NAME EXPECTED ACTUAL
check() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n  expected: %s\n  actual:   %s\n' "$1" "$2" "$3"
    fi
}

# The replies to COMMANDS, without the ready and done lines.
replies() { # PROGRAM COMMANDS
    "$out/$1" -c "$2" </dev/null 2>&1 | sed '/^ready /d; /^done /d'
}

last_reply() {
    replies "$1" "$2" | tail -n 1
}

truth() { # LIVE BYTES ALLOCS FREES FAILED NULLFREES
    echo "ok live=$1 bytes=$2 allocs=$3 frees=$4 failed=$5 nullfrees=$6"
}

exports() { # LIBRARY
    nm -D --defined-only "$1" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort
}

# Exported functions of LIBRARY that do not begin with push %rbp (0x55).
bad_prologues() {
    objdump -d -j .text "$1" | awk '
        /^[0-9a-f]+ <.*>:$/ { name = substr($2, 2, length($2) - 3); sub(/@.*/, "", name); next }
        name != "" { print name, $2; name = "" }' |
        sort | join -a 2 - <(exports "$1") | awk '$2 != "55"'
}

needed() {
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(libcud.*\)\]/\1/p'
}

soname() {
    readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'
}

check_binaries() {
    local library
    for library in libcuda.so.1 libcudart.so.12; do
        check "$library: SONAME" "$library" "$(soname "$out/$library")"
        check "$library: links no CUDA" "" "$(needed "$out/$library")"
        check "$library: prologues" "" "$(bad_prologues "$out/$library")"
    done
    local expected
    expected=$(sed -n 's/^DRIVER_SYMBOL(.*, \(cu.*\))$/\1/p' cuda_symbols.def | sort)
    check "libcuda: exports" "$expected" "$(exports "$out/libcuda.so.1" | grep -v '^standin_')"
    check "libcuda: hooks" "standin_fail standin_longjmp_arm standin_take_failure" \
        "$(exports "$out/libcuda.so.1" | grep '^standin_' | xargs)"
    check "libcudart: exports" 11 "$(exports "$out/libcudart.so.12" | grep -c '^cuda')"
    check "workload: links" libcudart.so.12 "$(needed "$out/workload")"
    check "workload_static: links" "" "$(needed "$out/workload_static")"
    check "workload_driver: links" libcuda.so.1 "$(needed "$out/workload_driver")"
    check "workload_dlopen: links" "" "$(needed "$out/workload_dlopen")"
    check "workload_static: dynamic symbols" 0 \
        "$(nm -D "$out/workload_static" | grep -c ' cuda')"
    check "workload_static: cudaMalloc is hidden" HIDDEN \
        "$(readelf -sW "$out/workload_static" | awk '$8 == "cudaMalloc" { print $6 }')"
}

check_memory() { # PROGRAM
    check "$1: a freed address is the next one" "ok 0x7d3320000000" \
        "$(last_reply "$1" 'alloc 8388608 3; free 0; alloc 8388608')"
    check "$1: counts" "$(truth 3 25165824 4 1 0 2)" \
        "$(last_reply "$1" 'alloc 8388608 3; free 0; alloc 8388608; freenull 2; status')"
    check "$1: double free" "ok frees=0 failed=1 error=1" \
        "$(last_reply "$1" 'alloc 512; free 0; freeaddr 0x7d3320000000')"
    check "$1: free of another thread's block" "$(truth 0 0 5 5 0 0)" \
        "$(last_reply "$1" 'thread a; @a alloc 512 5; free 0 5; join a; status')"
    check "$1: failures on demand" "$(truth 1 512 1 0 3 0)" \
        "$(last_reply "$1" 'fail cuMemAlloc_v2 2 2; alloc 512 3; fail cuMemFree_v2 1 719; free 0; status')"
    check "$1: longjmp out of the driver" "$(truth 1 512 1 0 0 0)" \
        "$(last_reply "$1" 'longjmp 3; alloc 512; status')"
    check "$1: reset frees without a free" "$(truth 1 512 5 0 0 0)" \
        "$(last_reply "$1" 'alloc 4096 4; reset; alloc 512; status')"
    check "$1: fork" "status=3 live=1 bytes=512 allocs=2 frees=1 failed=0 nullfrees=0" \
        "$(last_reply "$1" 'alloc 512; fork alloc 512 2 | free 0 | exit 3' 2>&1 | cut -d' ' -f3-)"
    check "$1: a killed child" "signal=9 live=2" \
        "$(last_reply "$1" 'fork alloc 512 2 | kill9' | cut -d' ' -f3-4)"
    check "$1: memory runs out" "ok 0x7d3320000000 0x7d3320001000 error=2 failed=1" \
        "$(STANDIN_DEVICE_BYTES=8192 last_reply "$1" 'alloc 4096 3')"
    check "$1: memory comes back" "ok 0x7d3320001000" \
        "$(STANDIN_DEVICE_BYTES=8192 last_reply "$1" 'alloc 4096 2; free 1; alloc 4096')"
    check "$1: devices" "ok 1" "$(STANDIN_DEVICES=2 last_reply "$1" 'setdevice 1; getdevice')"
    check "$1: no such device" "error CUDA error 101" \
        "$(STANDIN_DEVICES=2 last_reply "$1" 'setdevice 2')"
    check "$1: a device's memory is its own" "free=3584 total=4096" \
        "$(STANDIN_DEVICES=2 STANDIN_DEVICE_BYTES=4096 last_reply "$1" \
            'alloc 4096; setdevice 1; alloc 512; info' | grep -o 'free=.* total=[0-9]*')"
    check "$1: done" "\"live\":2,\"bytes\":1024,\"allocs\":2,\"frees\":0,\"failed\":0,\"nullfrees\":0}" \
        "$("$out/$1" -c 'alloc 512 2' </dev/null | tail -n 1 | cut -d, -f2-)"
}

check_stress() { # PROGRAM
    check "$1: race" "$(truth 0 0 400000 400000 0 0)" \
        "$(last_reply "$1" 'race 2 200000 4096; status')"
    check "$1: race with lingering frees" "$(truth 0 0 20000 20000 0 0)" \
        "$(STANDIN_FREE_LINGER_NS=2000 last_reply "$1" 'race 4 5000 4096; status')"
    check "$1: crossfree" "$(truth 0 0 50000 50000 0 0)" \
        "$(last_reply "$1" 'crossfree 50000 512; status')"
    check "$1: churn" "ok allocs=4000 frees=3600 failed=0 live=400 bytes=1638400" \
        "$(last_reply "$1" 'churn 2 2000 4096 10')"
    check "$1: churn, all freed" "$(truth 0 0 4000 4000 0 0)" \
        "$(last_reply "$1" 'churn 2 2000 4096 10; freeall; status')"
    check "$1: pace" "ok allocs=1000 frees=1000 failed=0" \
        "$(last_reply "$1" 'pace 10000 0.2 4096' | cut -d' ' -f1-4)"
    check "$1: 240,000 live blocks" "$(truth 240000 122880000 240000 0 0 0)" \
        "$(last_reply "$1" 'alloc 512 240000; status')"
    check "$1: 1,000,000 live blocks, freed" "$(truth 0 0 1000000 1000000 0 0)" \
        "$(last_reply "$1" 'alloc 512 1000000; freeall; status')"
}

check_rest() {
    check "runtime: zero bytes are no block" "$(truth 0 0 0 0 0 0)" \
        "$(last_reply workload 'alloc 0; status')"
    check "driver: zero bytes are an error" "ok error=1 failed=1" \
        "$(last_reply workload_driver 'alloc 0')"
    check "runtime: a failing runtime call" "$(truth 1 512 1 0 1 0)" \
        "$(last_reply workload 'fail cudaMalloc 1 2; alloc 512 2; status')"
    check "driver: created contexts" "$(truth 0 0 3 1 0 0)" \
        "$("$out/workload_driver" --ctx create -c 'alloc 512 3; free 0; reset; status' </dev/null |
            sed '/^done /d' | tail -n 1)"
    check "dlopen: nothing before load" "error no library yet: load PATH first" \
        "$(last_reply workload_dlopen 'alloc 512')"
    check "dlopen: counts" "$(truth 1 512 2 1 0 0)" \
        "$(last_reply workload_dlopen "load $out/libcudart.so.12; alloc 512 2; free 0; status")"
    check "commands from standard input, and through exec" "ready ok ready ok done" \
        "$(printf 'alloc 512\nexec %s\nalloc 512\nexit\n' "$out/workload" |
            "$out/workload" | cut -d' ' -f1 | grep -vn '^$' | cut -d: -f2 | uniq | xargs)"
    check "exit status" 7 "$("$out/workload" -c 'exit 7' >/dev/null </dev/null; echo $?)"
    check "unknown command" "error unknown command nonsense; try help" \
        "$(last_reply workload 'nonsense')"
}

# The block table and the runtime's lazy start, under the thread sanitizer. It
# wraps dlopen, which then no longer sees the run path of the library that calls.
check_threads() {
    local dir
    dir=$(mktemp -d)
    export LD_LIBRARY_PATH=$dir
    if ! make -s OUT="$dir" SANITIZE=thread >"$dir/log" 2>&1 ||
        ! "$dir/workload" -c status </dev/null >"$dir/log" 2>&1; then
        echo "SKIPPED: no working thread sanitizer: $(tail -n 1 "$dir/log")"
    else
        local commands='race 4 20000 4096; churn 4 2000 512 10; crossfree 5000 512; freeall; status'
        local program
        for program in workload workload_driver; do
            check "$program: thread sanitizer" "$(truth 0 0 93000 93000 0 0)" \
                "$("$dir/$program" -c "$commands" </dev/null 2>&1 | sed '/^done /d' | tail -n 1)"
        done
    fi
    unset LD_LIBRARY_PATH
    rm -rf "$dir"
}

make -s -j2 OUT="$out" || exit 1
check_binaries
for program in workload workload_static workload_driver; do
    check_memory "$program"
    check_stress "$program"
done
check_rest
check_threads
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
