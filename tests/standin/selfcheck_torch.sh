#!/bin/bash
# Part of selfcheck.sh: PyTorch's allocator, and the program that uses it.
#
# shellcheck disable=SC2154 # out is set by selfcheck.sh

# selfcheck_torch.py's output for the snapshot after COMMANDS, in one line.
snapshot() { # COMMANDS
    replies torchlike "$1; tsnapshot; setdevice 0; info" | python3 -B selfcheck_torch.py snapshot |
        paste -sd' '
}

# The named fields of the last reply to COMMANDS.
torch_fields() { # COMMANDS FIELD...
    last_reply torchlike "$1" | tr ' ' '\n' | grep -E "^($(echo "${*:2}" | tr ' ' '|'))=" | xargs
}

expandable() { # COMMAND ...
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "$@"
}

check_torch_libraries() {
    local folder parameters
    while read -r folder parameters; do
        check "$folder/libc10: what reports" "_ZN3c1027reportMemoryUsageToProfilerEPv$parameters" \
            "$(exports "$out/$folder/libc10.so" | grep reportMemoryUsage)"
        check "$folder/libc10: prologues" "" \
            "$(bad_prologues "$out/$folder/libc10.so" | grep -v '^standin_')"
        check "$folder: a report of each" "calls=3 bytes=512" \
            "$(LD_LIBRARY_PATH=$out/$folder torch_fields 'tmalloc a 100 2; tfree a 1; ttold' calls bytes)"
    done <<-END
	. lmmNS_6DeviceE
	c10_2_0 lmmNS_6DeviceE
	c10_1_10 lllNS_6DeviceE
	c10_1_9 lNS_6DeviceE
	END
    check "libc10_cuda: notes" \
        "free -8@%rdi|free -8@N(%rbp)|malloc -8@%rax -1@%dl -8@%r14 -8@N(%rbp)|malloc -8@N(%rbp) -1@N(%rbp) -8@%rcx -8@\$0" \
        "$(python3 -B selfcheck_torch.py notes "$out/libc10_cuda.so" | sort | paste -sd'|')"
    for folder in c10_2_0 c10_1_10 c10_1_9; do
        check "$folder/libc10_cuda: no notes" 0 \
            "$(readelf -nW "$out/$folder/libc10_cuda.so" | grep -c stapsdt)"
    done
}

# PyTorch's constants: the bytes that a first request of a size reserves.
check_torch_sizes() {
    local bytes ordinary mapped
    while read -r bytes ordinary mapped; do
        check "torch: reserved for $bytes" "reserved=$ordinary" \
            "$(torch_fields "tmalloc a $bytes; tstats" reserved)"
        check "torch: mapped for $bytes" "reserved=$mapped" \
            "$(expandable torch_fields "tmalloc a $bytes; tstats" reserved)"
    done <<-END
	1 2097152 2097152
	1048576 2097152 2097152
	1048577 20971520 20971520
	10485248 20971520 20971520
	10485760 10485760 20971520
	10485761 12582912 20971520
	20971521 23068672 41943040
	END
}

check_torch_blocks() {
    check "torch: sums" \
        "ok allocated=66003456 reserved=85983232 requested=66001300 mallocs=8 frees=0 out_of_memory=0" \
        "$(last_reply torchlike 'tmalloc a 1000; tmalloc b 3000000 2 stream=5; tleak forward 3 100; tleak loader 2 30000000; tstats')"
    check "torch: the smallest free block that is large enough" "ok 0x7d3320100000" \
        "$(last_reply torchlike 'tmalloc a 524288; tmalloc x 524288; tmalloc b 4096; tmalloc x 1044480; tfree a; tfree b; tmalloc c 4000')"
    check "torch: neighbours are joined" "ok 0x7d3320000000" \
        "$(last_reply torchlike 'tmalloc a 524288 4; tfree a 3; tmalloc c 1048576')"
    check "torch: streams share nothing" "device=0 segments=3 blocks=3 small" \
        "$(snapshot 'tmalloc a 512; tmalloc b 512 stream=1; tmalloc c 512 stream=2')"
    check "torch: a mebibyte of a large segment is not split off" "allocated=12582912 requested=11534336" \
        "$(torch_fields 'tmalloc a 11534336; tstats' allocated requested)"
    check "torch: but 512 bytes of an expandable one are" "allocated=11534336 requested=11534336" \
        "$(expandable torch_fields 'tmalloc a 11534336; tstats' allocated requested)"
    check "torch: another thread frees" "allocated=0 frees=3" \
        "$(torch_fields 'thread x; tmalloc a 512 3; @x tfree a; tstats' allocated frees)"
    check "torch: freed twice" "ok frees=0" \
        "$(last_reply torchlike 'tmalloc a 512; tmalloc b 512; tfree a; tfree a')"
    check "torch: devices" "device=0 segments=1 blocks=2 small device=1 segments=1 blocks=1 large" \
        "$(STANDIN_DEVICES=2 snapshot 'tmalloc a 512 2; setdevice 1; tmalloc b 5000000')"
    check "torch: raw blocks are reported too" "calls=4 bytes=0" \
        "$(torch_fields 'tmalloc a 512 2 raw; tfree a raw; ttold' calls bytes)"
    check "torch: without caching nothing is reported" "calls=0 bytes=0" \
        "$(PYTORCH_NO_CUDA_MEMORY_CACHING=1 torch_fields 'tmalloc a 100 2; tfree a 1; ttold' calls bytes)"
}

check_torch_cache() { # as it is, or `expandable`
    check "torch ${1:-}: what is free is cached" "device=0 segments=1 blocks=0 ${1:-large}" \
        "$("${@}" snapshot 'tmalloc a 30000000; tfree a')"
    check "torch ${1:-}: and goes with the cache" "device=0 segments=0 blocks=0" \
        "$("${@}" snapshot 'tmalloc a 30000000; tfree a; tempty')"
    check "torch ${1:-}: a tensor keeps its segment" "device=0 segments=1 blocks=1 ${1:-small}" \
        "$("${@}" snapshot 'tmalloc a 512; tmalloc b 512; tfree a; tempty')"
    check "torch ${1:-}: the last sums" \
        "allocated=512 reserved=2097152" \
        "$("${@}" torch_fields 'tmalloc a 512; tmalloc b 30000000; tfree b; tempty; tmalloc c 512; tfree c; ttold' allocated reserved)"
    check "torch ${1:-}: the cache goes before memory runs out" "reserved=41943040 out_of_memory=0" \
        "$(STANDIN_DEVICE_BYTES=62914560 "${@}" torch_fields 'tmalloc a 30000000; tfree a; tmalloc b 41943040; tstats' reserved out_of_memory)"
    check "torch ${1:-}: memory runs out" "bytes=41943040 allocated=41943040 reserved=41943040 out_of_memory=1" \
        "$(STANDIN_DEVICE_BYTES=62914560 "${@}" torch_fields 'tmalloc a 41943040; tmalloc b 41943040; ttold' bytes allocated reserved out_of_memory)"
    check "torch ${1:-}: and is whole" "device=0 segments=1 blocks=1 ${1:-large}" \
        "$(STANDIN_DEVICE_BYTES=62914560 "${@}" snapshot 'tmalloc a 41943040; tmalloc b 41943040')"
}

check_torch_expandable() {
    local three='tmalloc a 20971520; tmalloc b 20971520; tmalloc c 20971520'
    check "torch: a block over several pieces" "device=0 segments=1 blocks=1 expandable" \
        "$(expandable snapshot 'tmalloc a 50000000')"
    check "torch: one segment grows" "device=0 segments=1 blocks=3 expandable" \
        "$(expandable snapshot "$three")"
    check "torch: a gap makes two" "device=0 segments=2 blocks=2 expandable" \
        "$(expandable snapshot "$three; tfree b; tempty")"
    check "torch: a gap is filled first" "device=0 segments=1 blocks=3 expandable" \
        "$(expandable snapshot "$three; tfree b; tempty; tmalloc d 20971520")"
    check "torch: a piece that is half free stays" "reserved=41943040" \
        "$(expandable torch_fields 'tmalloc a 10485760 4; tfree a 1; tempty; tstats' reserved)"
    check "torch: of three pieces one is free" "reserved=41943040" \
        "$(expandable torch_fields 'tmalloc a 10485760; tmalloc b 41943040; tmalloc c 10485760; tfree b; tempty; tstats' reserved)"
    check "torch: addresses are given up" "live=0 vmm_live=0 vmm_bytes=0" \
        "$(expandable torch_fields "$three; tfreeall; tempty; status" live vmm_live vmm_bytes)"
}

check_torch_stress() { # as it is, or `expandable`
    local found
    found=$(STANDIN_DEVICES=2 "${@}" snapshot 'tchurn 3 20000 5')
    check "torch ${1:-}: churn: what is found" "device=0 device=1" "$(grep -o 'device=.' <<<"$found" | xargs)"
    check "torch ${1:-}: churn: what is wrong" "" "$(grep -o 'WRONG.*' <<<"$found")"
    check "torch ${1:-}: churn, all freed" "device=0 segments=0 blocks=0 device=1 segments=0 blocks=0" \
        "$(STANDIN_DEVICES=2 "${@}" snapshot 'tchurn 3 20000 5; tfreeall; tempty')"
    check "torch ${1:-}: churn in little memory" "" \
        "$(STANDIN_DEVICE_BYTES=400000000 "${@}" snapshot 'tchurn 2 20000 9' | grep -o 'WRONG.*')"
    check "torch ${1:-}: flood" "calls=80000 bytes=0 allocated=0" \
        "$("${@}" torch_fields 'tflood 2 20000 5000; ttold' calls bytes allocated)"
}

check_torch_programs() {
    check "torch: rate" "ok mallocs=500 frees=500 failed=0" \
        "$(last_reply torchlike 'trate 10000 0.1 4096' | cut -d' ' -f1-4)"
    check "torch: reports that are not true" "calls=4 bytes=-512 reserved=9" \
        "$(torch_fields 'treport 0x1000 -512 7 8 index=255; treport 0 0 7 9 type=0 3; ttold' calls bytes reserved)"
    check "torch: nothing of it is the allocator's" "allocated=0 mallocs=0" \
        "$(torch_fields 'tgarbage 1000 7; tstats' allocated mallocs)"
    check "torch: an old version's function cannot be called" \
        "error this libc10 has no _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE" \
        "$(LD_LIBRARY_PATH=$out/c10_1_10 last_reply torchlike 'treport 0 0 0 0')"
    check "torch: from Python" "3072 0 -1" "$(python3 -c '
import ctypes, json, sys
torch = ctypes.CDLL(sys.argv[1])
torch.gp_torch_malloc.restype = ctypes.c_void_p
torch.gp_torch_malloc.argtypes = ctypes.c_size_t, ctypes.c_uint64
torch.gp_torch_free.argtypes = ctypes.c_void_p,
torch.gp_torch_snapshot.restype = ctypes.c_char_p
tensor = torch.gp_torch_malloc(3000, 0)
print(json.loads(torch.gp_torch_snapshot())[0]["allocated"], torch.gp_torch_free(tensor),
      torch.gp_torch_free(tensor))' "$out/libc10_cuda.so" 2>&1)"
}

check_torch() {
    check_torch_libraries
    check_torch_sizes
    check_torch_blocks
    check_torch_cache
    check_torch_cache expandable
    check_torch_expandable
    check_torch_stress
    check_torch_stress expandable
    check_torch_programs
}

# With the programs built in DIR.
check_torch_threads() { # DIR
    local settings
    for settings in '' expandable_segments:True; do
        check "torchlike $settings: thread sanitizer" "ok allocated=0 reserved=0 requested=0" \
            "$(STANDIN_DEVICES=2 PYTORCH_CUDA_ALLOC_CONF=$settings "$1/torchlike" \
                -c 'tchurn 4 3000 3; tflood 2 2000 512; tfreeall; tempty; tstats' </dev/null 2>&1 |
                sed '/^done /d' | tail -n 1 | cut -d' ' -f1-4)"
    done
}
