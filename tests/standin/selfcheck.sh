#!/bin/bash
# Checks the stand-in CUDA and its workload without any tracer: a tracer's test is only as good as
# the totals that it compares with.
#
#   tests/standin/selfcheck.sh [OUT]
#
# Needs a C compiler, make, binutils and python3. Exits 0 only if every check passed.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
out=$(realpath -m "${1:-build}")
passed=0
failed=0
unset STANDIN_DEVICES STANDIN_DEVICE_BYTES STANDIN_FREE_LINGER_NS LD_LIBRARY_PATH
unset STANDIN_COPY_GBPS STANDIN_HANDLE_LAYOUT STANDIN_COUNT_CALLS
unset STANDIN_CUPTI_VERSION STANDIN_CUPTI_FAULTS CUDA_INJECTION64_PATH
unset STANDIN_NVML_DEVICES STANDIN_NVML_PROCESSES CUDA_VISIBLE_DEVICES
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING
no_work="launches=0 captured=0 graph_launches=0 copies=0 copy_bytes=0 sets=0"

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

# The fields of the totals by kind of memory: all, or those that are not zero.
kinds_text() { # KIND=LIVE:BYTES...
    local kind given live bytes text=
    for kind in device pitched array managed pinned registered async vmm static graph imported; do
        live=0 bytes=0
        for given in "$@"; do
            [ "${given%%=*}" != "$kind" ] || IFS=: read -r live bytes <<<"${given#*=}"
        done
        text+=" ${kind}_live=$live ${kind}_bytes=$bytes"
    done
    echo "${text# }"
}

truth() { # LIVE BYTES ALLOCS FREES FAILED NULLFREES
    echo "ok live=$1 bytes=$2 allocs=$3 frees=$4 failed=$5 nullfrees=$6 $no_work $(kinds_text "device=$1:$2")"
}

# The same with memory of any kind.
truth_of() { # ALLOCS FREES FAILED NULLFREES KIND=LIVE:BYTES...
    local calls="allocs=$1 frees=$2 failed=$3 nullfrees=$4" given live=0 bytes=0
    shift 4
    for given in "$@"; do
        case ${given%%=*} in pinned | registered | imported) continue ;; esac
        live=$((live + $(cut -d: -f1 <<<"${given#*=}")))
        bytes=$((bytes + ${given#*:}))
    done
    echo "ok live=$live bytes=$bytes $calls $no_work $(kinds_text "$@")"
}

# The fields of the last status about GPU work.
work() { # PROGRAM COMMANDS
    last_reply "$1" "$2; status" | cut -d' ' -f8-13
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
        # Those that CUDA has, too.
        check "$library: prologues" "" "$(bad_prologues "$out/$library" | grep -v '^standin_')"
    done
    local expected
    expected=$(sed -n -e 's/^DRIVER_SYMBOL(.*, \(cu.*\))$/\1/p' \
        -e 's/^DRIVER_TWINS(.*, \(cu.*\), \(_.*\))$/\1\n\1\2/p' cuda_symbols.def | sort -u)
    check "libcuda: exports" "$expected" "$(exports "$out/libcuda.so.1" | grep -v '^standin_')"
    expected="standin_activity_attach standin_activity_enter standin_activity_leave standin_calls"
    expected+=" standin_fail standin_longjmp_arm standin_take_failure"
    check "libcuda: hooks" "$expected" \
        "$(exports "$out/libcuda.so.1" | grep '^standin_' | xargs)"
    expected=$(cc -E cudart_abi.h | grep -oE '\b(__)?cuda\w+ ?\(' | tr -d ' (' | sort -u)
    check "libcudart: exports" "$expected" "$(exports "$out/libcudart.so.12")"
    check "libcudart: __cudaLaunchKernel jumps" "push mov pop jmp" \
        "$(objdump -d --no-show-raw-insn "$out/libcudart.so.12" |
            awk '/<__cudaLaunchKernel.*>:$/ { f = 1; next } f && n++ < 4 { print $2 }' | head -4 | xargs)"
    check "workload: links" libcudart.so.12 "$(needed "$out/workload")"
    check "workload_static: links" "" "$(needed "$out/workload_static")"
    check "workload_ptsz: links" libcudart.so.12 "$(needed "$out/workload_ptsz")"
    check "workload_driver: links" libcuda.so.1 "$(needed "$out/workload_driver")"
    check "workload_dlopen: links" "" "$(needed "$out/workload_dlopen")"
    check "workload_static: dynamic symbols" 0 \
        "$(nm -D "$out/workload_static" | grep -c ' \(__\)\?cuda')"
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
    check "$1: fork" "status=3 live=1 bytes=512 allocs=2 frees=1 failed=0 nullfrees=0 $no_work $(kinds_text device=1:512)" \
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
    check "$1: done" "\"live\":2,\"bytes\":1024,\"allocs\":2,\"frees\":0,\"failed\":0,\"nullfrees\":0,$(echo "$no_work $(kinds_text device=2:1024)" | sed 's/\([a-z_]*\)=/"\1":/g; s/ /,/g')}" \
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

# The number of calls of each FUNCTION that COMMANDS make, as the stand-in counts.
calls() { # PROGRAM COMMANDS FUNCTION...
    STANDIN_COUNT_CALLS=1 last_reply "$1" "$2; calls ${*:3}"
}

vec_add=_Z6vecAddPKfS0_Pfi
elementwise=_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_
gemm=sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas

check_launches() { # PROGRAM
    local handle
    check "$1: launches" "launches=5 captured=0 graph_launches=0 copies=0 copy_bytes=0 sets=0" \
        "$(work "$1" "launch $vec_add 3; launch 3 stream=per-thread; launch triton_poi_fused_add_0 grid=2,3,4 block=5,6,7")"
    check "$1: a grid of nothing" "launches=0 captured=0 failed=1 error=1" \
        "$(last_reply "$1" 'launch 0 grid=0,1,1' | sed 's/^ok //; s/ handle=[^ ]*//; s/ host=[^ ]*//')"
    check "$1: a block of too many threads" "failed=1 error=1" \
        "$(last_reply "$1" 'launch 0 block=1024,2,1' | grep -o 'failed=.*')"
    check "$1: a handle is reused, first by first" "" \
        "$(replies "$1" 'module one two; unload 0; module three four' |
            sed '/^ok$/d; s/^ok [0-9]*//; s/[a-z]*=//g' | uniq -u)"
    handle=$(last_reply "$1" 'module one two; unload 0; module three; launch three 2' |
        grep -o 'launches=2 captured=0 handle=')
    check "$1: a loaded kernel" "launches=2 captured=0 handle=" "$handle"
    check "$1: an unloaded kernel" "error no kernel one" \
        "$(last_reply "$1" 'module one two; unload 0; module three; launch one')"
    check "$1: many kernels" "launches=300000 captured=0" \
        "$(last_reply "$1" 'module generated=100000; launch all 3' | cut -d' ' -f2-)"
    check "$1: storm" "ok launches=20000 $vec_add=6667 $elementwise=6667 $gemm=6666" \
        "$(last_reply "$1" 'launchstorm 2 10000')"
    check "$1: graph" "ok captured=5 graph_launches=23" "$(last_reply "$1" 'graph 5 23')"
    check "$1: graph of two streams" "ok captured=5 graph_launches=23" \
        "$(last_reply "$1" 'graph 5 23 fork')"
    check "$1: capture, step by step" \
        "launches=4 captured=3 graph_launches=7 copies=0 copy_bytes=0 sets=0" \
        "$(work "$1" 'stream; capture 0; launch 0 3 stream=0; launch 0 2; endcapture 0; launch 1 2 stream=0; graphlaunch 0 7 stream=0')"
    check "$1: nodes" "ok 0 nodes=3" \
        "$(last_reply "$1" 'stream; capture 0; launch 0 3 stream=0; launch 0 2; endcapture 0')"
    check "$1: a captured launch is a call" "ok cuLaunchKernel=5 cuGraphLaunch=23" \
        "$(calls "$1" 'graph 5 23' cuLaunchKernel cuGraphLaunch)"
    check "$1: a failing launch" "launches=2 captured=0 failed=1 error=719" \
        "$(last_reply "$1" 'fail cuLaunchKernel 1 719; launch 0 3' | sed 's/^ok //; s/ handle=[^ ]*//; s/ host=[^ ]*//')"
    check "$1: launches after a reset" "ok launches=1 captured=0 handle=" \
        "$(last_reply "$1" 'launch 0; reset; launch 0' | grep -o '.*handle=')"
    check "$1: a worker thread launches and copies" \
        "launches=2 captured=0 graph_launches=0 copies=3 copy_bytes=3072 sets=1" \
        "$(work "$1" 'thread a; @a launch 0 2; @a copy h2d 1024 3; @a set 512')"
}

kinds="h2d d2h d2d h2h default-h2d default-d2h default-d2d peer 2d 2d-d2h 2d-d2d
    3d 3d-d2h 3d-d2d batch h2a a2h d2a a2d a2a"

check_copies() { # PROGRAM
    local kind commands=
    for kind in $kinds; do
        check "$1: copy $kind" "ok calls=2 bytes=2000" \
            "$(STANDIN_DEVICES=2 last_reply "$1" "copy $kind 1000 2 pinned" | cut -d' ' -f1-3)"
        commands+="copy $kind 4096 3; "
    done
    check "$1: copies" "launches=0 captured=0 graph_launches=0 copies=60 copy_bytes=245760 sets=0" \
        "$(work "$1" "$commands")"
    check "$1: copies leave nothing" "ok live=0" \
        "$(last_reply "$1" "$commands status" | cut -d' ' -f1-2)"
    check "$1: sets" "launches=0 captured=0 graph_launches=0 copies=0 copy_bytes=0 sets=7" \
        "$(work "$1" 'set 4096 7')"
    check "$1: copy to memory that is free" "failed=1 error=1" \
        "$(last_reply "$1" 'alloc 4096; free 0; copy h2d 4096 dst=0x7d3320000000' | grep -o 'failed=.*')"
    check "$1: copy beyond a block" "failed=1 error=1" \
        "$(last_reply "$1" 'alloc 4096; copy d2h 4096 src=0x7d3320000001' | grep -o 'failed=.*')"
    check "$1: copy within a block" "ok calls=1 bytes=4095" \
        "$(last_reply "$1" 'alloc 4096; copy default-d2h 4095 src=0x7d3320000001' | cut -d' ' -f1-3)"
    check "$1: a failing set" "failed=1 error=1" \
        "$(last_reply "$1" 'fail cuMemsetD8_v2 1 1; set 4096' | grep -o 'failed=.*')"
}

# Checks that the workload's copies take as long as they should. A busy machine can make one attempt
# take longer, and nothing can make one shorter.
check_speed() { # PROGRAM KIND GBPS
    local speed verdict=
    for _ in {1..40}; do
        speed=$(STANDIN_COPY_GBPS=$3 last_reply "$1" "copy $2 1048576 5" | sed 's/.*bytes_per_second=//')
        verdict=$(awk -v s="$speed" -v n="$3" 'BEGIN {
            r = s / (n * 1e9); print (r > 1.0001 ? "too fast" : r < 0.95 ? "too slow" : "right") }')
        [ "$verdict" = "too slow" ] || break
    done
    check "$1: $2 at $3 GB/s" right "$verdict"
}

# Every copy and set function of libcuda can be looked up and is called.
check_functions() {
    local function suffix kind reply
    for function in $(exports "$out/libcuda.so.1" | grep '^cuMemcpy\|^cuMemset'); do
        reply=
        if [[ $function == cuMemset* ]]; then
            reply=$(calls workload_driver "set 4096 3 via=$function" "$function")
        else
            for kind in $kinds batch-3d; do
                reply=$(calls workload_driver "copy $kind 4096 3 via=$function" "$function")
                [ "$reply" = "ok $function=3" ] && break
            done
        fi
        check "driver: $function" "ok $function=3" "$reply"
    done
    for suffix in '' _ptsz; do
        for function in cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel; do
            function+=$suffix
            check "driver: $function" "ok $function=3" \
                "$(calls workload_driver "launch 0 3 via=$function" "$function")"
        done
        check "runtime: cudaLaunchKernelExC$suffix" \
            "ok cudaLaunchKernelExC$suffix=3 cuLaunchKernelEx$suffix=3" \
            "$(calls workload "launch 0 3 via=cudaLaunchKernelExC$suffix" \
                "cudaLaunchKernelExC$suffix cuLaunchKernelEx$suffix")"
        check "runtime: cudaLaunchCooperativeKernel$suffix" \
            "ok cuLaunchCooperativeKernel$suffix=3" \
            "$(calls workload "launch 0 3 via=cudaLaunchCooperativeKernel$suffix" \
                "cuLaunchCooperativeKernel$suffix")"
        check "runtime: __cudaLaunchKernel$suffix" \
            "ok cudaLaunchKernel$suffix=3 cuLaunchKernel$suffix=3" \
            "$(calls workload "launch 0 3 via=__cudaLaunchKernel$suffix" \
                "cudaLaunchKernel$suffix cuLaunchKernel$suffix")"
    done
}

# The driver function behind each runtime call.
check_nesting() { # PROGRAM
    local command function
    while read -r function command; do
        check "$1: $command" "ok $function=3" "$(calls "$1" "$command" "$function")"
    done <<-END
	cuMemcpyHtoD_v2 copy h2d 4096 3
	cuMemcpyDtoH_v2 copy d2h 4096 3
	cuMemcpyDtoD_v2 copy d2d 4096 3
	cuMemcpy copy default-h2d 4096 3
	cuMemcpy copy default-d2h 4096 3
	cuMemcpyHtoDAsync_v2 copy h2d 4096 3 via=cudaMemcpyAsync
	cuMemcpyDtoHAsync_v2_ptsz copy d2h 4096 3 via=cudaMemcpyAsync_ptsz
	cuMemcpyHtoD_v2_ptds copy h2d 4096 3 via=cudaMemcpy_ptds
	cuMemcpyAsync copy default-d2d 4096 3 via=cudaMemcpyAsync
	cuMemcpyPeer copy peer 4096 3
	cuMemcpyPeerAsync copy peer 4096 3 via=cudaMemcpyPeerAsync
	cuMemcpy2DUnaligned_v2 copy 2d 4096 3
	cuMemcpy2DAsync_v2 copy 2d 4096 3 via=cudaMemcpy2DAsync
	cuMemcpy3D_v2 copy 3d 4096 3
	cuMemcpyBatchAsync copy batch 4096 3
	cuMemcpyHtoA_v2 copy h2a 4096 3
	cuMemcpyAtoH_v2 copy a2h 4096 3
	cuMemsetD8_v2 set 4096 3
	cuMemsetD8Async set 4096 3 via=cudaMemsetAsync
	END
}

check_kernels() {
    local via
    check "driver: copies of no duration" "ok calls=1 bytes=1000000000000" \
        "$(STANDIN_COPY_GBPS=0 STANDIN_DEVICE_BYTES=2000000000000 last_reply workload_driver \
            'alloc 1000000000000; copy h2d 1000000000000 dst=0x7d3320000000 src=0x1000' | cut -d' ' -f1-3)"
    for via in module library function; do
        check "driver: launch via a $via" "launches=2" \
            "$(last_reply workload_driver "module one via=$via; launch one 2" | grep -o 'launches=2')"
    done
    check "driver: a kernel's name at its handle" \
        "_Z3onePf driver|unreadable other|no name text|_Z11otherKernelPfi wrong" \
        "$(for layout in driver other text wrong; do echo "$(name_at_handle $layout) $layout"; done |
            paste -sd'|')"
    check "runtime: host functions have symbols" 5 \
        "$(nm "$out/workload" | grep -c " [tT] $vec_add$\| [tT] $elementwise$\| t _Z[0-9]*__device_stub_")"
}

# The memory 8 bytes after the handle of a loaded kernel, read from the process as a tracer would.
name_at_handle() { # LAYOUT
    coproc WORKLOAD { STANDIN_HANDLE_LAYOUT=$1 exec "$out/workload_driver" 2>&1; }
    local pid reply ready
    read -r ready pid <&"${WORKLOAD[0]}"
    echo "module _Z3onePf" >&"${WORKLOAD[1]}"
    read -r reply <&"${WORKLOAD[0]}"
    python3 - "$pid" "${reply##*=}" <<-'END'
	import sys
	with open(f"/proc/{sys.argv[1]}/mem", "rb", 0) as memory:
	    memory.seek(int(sys.argv[2], 16) + 8)
	    pointer = int.from_bytes(memory.read(8), "little")
	    try:
	        memory.seek(pointer)
	        text = memory.read(64).split(b"\0")[0]
	        print(text.decode("ascii") if text.isascii() else "no name")
	    except OSError:
	        print("unreadable")
	END
    echo exit >&"${WORKLOAD[1]}"
    wait "$WORKLOAD_PID" 2>/dev/null
    : "$ready"
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
        local commands='race 4 20000 4096; churn 4 2000 512 10; crossfree 5000 512; freeall;
            launchstorm 4 5000; graph 5 23 fork; copy h2d 4096; status'
        local program
        for program in workload workload_driver; do
            check "$program: thread sanitizer" \
                "ok live=0 bytes=0 allocs=93001 frees=93001 failed=0 nullfrees=0 launches=20000 captured=5 graph_launches=23 copies=1 copy_bytes=4096 sets=0 $(kinds_text)" \
                "$("$dir/$program" -c "$commands" </dev/null 2>&1 | sed '/^done /d' | tail -n 1)"
        done
        check_pool_threads "$dir"
    fi
    unset LD_LIBRARY_PATH
    rm -rf "$dir"
}

# shellcheck source=tests/standin/selfcheck_memory.sh
. ./selfcheck_memory.sh

# shellcheck source=tests/standin/selfcheck_pools.sh
. ./selfcheck_pools.sh

# shellcheck source=tests/standin/selfcheck_cupti.sh
. ./selfcheck_cupti.sh

# shellcheck source=tests/standin/selfcheck_stressor.sh
. ./selfcheck_stressor.sh

make -s -j2 OUT="$out" || exit 1
check_binaries
for program in workload workload_static workload_driver; do
    check_memory "$program"
    check_stress "$program"
    check_launches "$program"
    check_copies "$program"
    check_kinds "$program"
    check_speed "$program" h2d 8
    check_speed "$program" d2h 2.5
done
check_nesting workload
check_nesting workload_static
check_functions
check_kernels
check_kind_nesting workload
check_kind_nesting workload_static
check_contexts
check_nvml
check_rest
check_pools
check_cupti
check_stressor
check_threads
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
