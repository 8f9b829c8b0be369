# shellcheck shell=bash
# Part of selfcheck.sh, which includes it: memory that belongs to a context, the
# contexts, and the management library.

check_kinds() { # PROGRAM
    local pair
    check "$1: each kind" \
        "$(truth_of 10 0 0 0 pitched=3:22528 managed=1:1000 pinned=3:8292 registered=2:16384 array=1:8192)" \
        "$(last_reply "$1" 'pitched 100 10 2; pitched3d 600 4 3; managed 1000; pinned 4096 2;
            hostalloc 100; register 8192 2; array 64 32 0 4 8; status' | tail -n 1)"
    check "$1: each kind is freed its own way" "$(truth_of 7 7 0 0)" \
        "$(last_reply "$1" 'pitched 100 10; pitched3d 600 4 3; managed 1000; pinned 4096;
            register 8192; array 64 32 0 4 8; mipmap 64 64 0 3 4 8; kfree 0 2; kfreeall; status')"
    check "$1: a dead kslot" "ok frees=0 failed=0 dead=1" \
        "$(last_reply "$1" 'managed 512; kfree 0; kfree 0')"
    check "$1: freeaddr of managed memory" "$(truth_of 1 1 0 0)" \
        "$(last_reply "$1" 'managed 512; freeaddr 0x7d3320000000; status')"
    check "$1: memory of rows is padded" "ok 0=pitched:0x7d3320000000:5120 1=pitched:0x7d3320001400:10240" \
        "$(last_reply "$1" 'pitched 512 10; pitched 513 10; kslots')"
    check "$1: failures of each kind" \
        "$(truth_of 1 0 6 0 managed=1:512)" \
        "$(last_reply "$1" 'fail cuMemAllocPitch_v2 1 2; pitched 100 1; fail cuMemAllocManaged 1 2;
            managed 512 2; fail cuMemHostRegister_v2 1 712; register 4096; fail cuMemHostAlloc 1 2;
            hostalloc 64; fail cuMipmappedArrayCreate 1 2; mipmap 4 4 0 1 1 8; fail cuMemFree_v2 1 719;
            kfree 0; status')"
    check "$1: a reset ends them without a free" "$(truth_of 8 0 0 0)" \
        "$(last_reply "$1" 'pitched 100 10; managed 1000; pinned 4096; hostalloc 100; register 8192;
            array 64 32 0 4 8; mipmap 64 64 0 3 4 8; symbol standin_table; alloc 512; reset; status')"
    check "$1: what a reset ended is free" "ok free=4096" \
        "$(STANDIN_DEVICE_BYTES=4096 last_reply "$1" 'array 64 32 0 1 8; managed 1024;
            reset; info' | sed 's/backend=.* free=/free=/; s/ total.*//')"
    check "$1: a kslot of another thread" "$(truth_of 3 3 0 0)" \
        "$(last_reply "$1" 'thread a; @a pinned 4096 3; kfree 0 3; status')"
    check "$1: pinned memory of a copy" "allocs=3 frees=3" \
        "$(last_reply "$1" 'copy h2d 4096 pinned; copy h2d 4096; status' | cut -d' ' -f4,5)"
    for pair in '64 32 0 4 8=8192' '64 0 0 2 16=256' '64 64 4 2 float=131072' \
        '64 64 6 1 32 4=98304' '64 0 5 1 8 1=320' '32 32 0 1 8 64=0' '32 32 0 1 8 128=0'; do
        check "$1: array ${pair%=*}" "bytes=${pair#*=}" \
            "$(last_reply "$1" "array ${pair%=*}" | cut -d' ' -f3)"
    done
    for pair in '64 64 0 3 4 8=21504' '16 16 16 5 1 half=9362' '8 8 6 4 1 8 4=510' \
        '64 1 0 2 1 8=96'; do
        check "$1: mipmap ${pair%=*}" "bytes=${pair#*=}" \
            "$(last_reply "$1" "mipmap ${pair%=*}" | cut -d' ' -f3)"
    done
    check "$1: arrays take memory" "ok free=1904 total=4096" \
        "$(STANDIN_DEVICE_BYTES=4096 last_reply "$1" 'array 64 32 0 1 8; mipmap 12 12 0 1 1 8;
            array 32 32 0 4 8 64; info' | sed 's/backend=.* free=/free=/; s/ slots.*//')"
    check "$1: variables" "$(truth_of 0 0 0 0 static=2:4196)" \
        "$(last_reply "$1" 'module one v=100; symbol v; symbol v; symbol standin_counter; status')"
    check "$1: a variable has one address" 1 \
        "$(replies "$1" 'module one v=100; symbol v; symbol v' | grep 0x7d | uniq | wc -l)"
    check "$1: a variable's size alone" "$(truth_of 0 0 0 0)" \
        "$(last_reply "$1" 'module one v=100; symbol v size; symbol v address; status')"
    check "$1: variables go with their module" "$(truth_of 0 0 0 0 static=1:70)" \
        "$(last_reply "$1" 'module one v=100 w=m200; module two x=70; symbol v; symbol w; symbol x;
            unload 0; status')"
    check "$1: no free gives a variable back" "$(truth_of 0 0 1 0 static=1:100)" \
        "$(last_reply "$1" 'module one v=100; symbol v; freeaddr 0x7d3320000000; status')"
    check "$1: a library's variable after a reset" "$(truth_of 0 0 0 0 static=1:65536)" \
        "$(last_reply "$1" 'symbol standin_table; reset; symbol standin_table; status')"
}

# The driver function behind each runtime call about memory.
check_kind_nesting() { # PROGRAM
    local command functions
    while IFS=: read -r functions command; do
        check "$1: $command" "ok ${functions// /=1 }=1" "$(calls "$1" "$command" "$functions")"
    done <<-END
	cudaMallocPitch cuMemAllocPitch_v2 cudaFree cuMemFree_v2:pitched 100 10; kfree 0
	cudaMalloc3D cuMemAllocPitch_v2:pitched3d 100 10 2
	cudaMallocManaged cuMemAllocManaged cudaFree cuMemFree_v2:managed 512; kfree 0
	cudaMallocHost cuMemHostAlloc cudaFreeHost cuMemFreeHost:pinned 512; kfree 0
	cudaHostAlloc cuMemHostAlloc cudaFreeHost cuMemFreeHost:hostalloc 512; kfree 0
	cudaHostRegister cuMemHostRegister_v2 cudaHostUnregister cuMemHostUnregister:register 512; kfree 0
	cudaMallocArray cuArray3DCreate_v2 cudaFreeArray cuArrayDestroy:array 64 32 0 1 8; kfree 0
	cudaMalloc3DArray cuArray3DCreate_v2 cudaFreeArray cuArrayDestroy:array 64 32 2 1 8; kfree 0
	cudaMallocMipmappedArray cuMipmappedArrayCreate cudaFreeMipmappedArray cuMipmappedArrayDestroy:mipmap 64 32 0 2 1 8; kfree 0
	cudaGetSymbolAddress cuLibraryGetGlobal cuLibraryLoadData:symbol standin_counter
	cudaLibraryGetGlobal cuLibraryGetGlobal:module one v=5; symbol v
	cudaLibraryGetManaged cuLibraryGetManaged:module one v=m5; symbol v
	END
    check "$1: null frees" "$(truth_of 0 0 0 3)" \
        "$(last_reply "$1" 'kfreenull pinned; kfreenull array; kfreenull mipmap; status')"
}

check_contexts() {
    local program=workload_driver pair
    check "driver: functions for memory" \
        "ok cuMemAllocHost_v2=1 cuArrayCreate_v2=1 cuArray3DCreate_v2=1 cuModuleGetGlobal_v2=1" \
        "$(calls $program 'pinned 64; array 4 4 0 1 8; array 4 4 4 1 8; symbol standin_table' \
            "cuMemAllocHost_v2 cuArrayCreate_v2 cuArray3DCreate_v2 cuModuleGetGlobal_v2")"
    for pair in '64 64 0 4 bc1=2048' '65 3 0 1 bc7=272' '64 64 0 1 unorm8=4096' \
        '8 8 0 4 snorm16x4=512' '8 8 0 4 unorm101010=256'; do
        check "driver: array ${pair%=*}" "bytes=${pair#*=}" \
            "$(last_reply $program "array ${pair%=*}" | cut -d' ' -f3)"
    done
    check "driver: mipmap of blocks" "bytes=48" \
        "$(last_reply $program 'mipmap 8 8 0 3 4 bc1' | cut -d' ' -f3)"
    check "driver: a context owns its memory" "$(truth_of 9 0 0 0 device=1:512 array=1:64)" \
        "$(last_reply $program 'alloc 512; array 8 8 0 1 8; ctx create; alloc 1024; pitched 8 8;
            managed 512; pinned 64; register 64; array 8 8 0 1 8; mipmap 8 8 0 1 1 8; module m v=64;
            symbol v; ctx destroy 0; status')"
    check "driver: a context that is not current is destroyed" "$(truth_of 3 0 0 0 device=2:1024)" \
        "$(last_reply $program 'alloc 512; ctx create; alloc 4096; ctx pop; ctx destroy 0;
            alloc 512; status')"
    check "driver: push, pop and set" "$(truth_of 3 0 0 0 device=2:1536)" \
        "$(last_reply $program 'ctx create; ctx pop; alloc 512; ctx push 0; alloc 2048; ctx pop;
            ctx create; ctx set 0; ctx pop; alloc 1024; ctx destroy 0; ctx destroy 1; status')"
    check "driver: a context of another device" "released=1" \
        "$(STANDIN_DEVICES=2 last_reply $program 'ctx create 1; alloc 512; setdevice 0; alloc 512;
            ctx destroy 0' | cut -d' ' -f2)"
    check "driver: the last release ends the primary context" "$(truth_of 2 0 0 0 device=1:4096)" \
        "$(last_reply $program 'alloc 512; primary retain; primary release; primary release;
            alloc 4096; status')"
    check "driver: a release that is not the last" "$(truth_of 1 0 0 0 device=1:512)" \
        "$(last_reply $program 'alloc 512; primary retain; primary retain; primary release; status')"
    check "driver: an unregister that fails" "ok frees=0 failed=1 error=713" \
        "$(last_reply $program 'register 4096; fail cuMemHostUnregister 1 713; kfree 0')"
    check "runtime: no contexts" "error this backend has no say in contexts" \
        "$(last_reply workload 'ctx create')"
    check "driver: UUIDs of the devices that are seen" "2 0102" "$(CUDA_VISIBLE_DEVICES=1,2 uuids)"
    check "driver: visible by UUID" "1 02" \
        "$(CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000002,9,0 uuids)"
}

# The number of four devices that the driver sees, and the last byte of each one's UUID.
uuids() {
    STANDIN_DEVICES=4 python3 - "${out:?}/libcuda.so.1" <<-'END'
	import ctypes, sys
	cuda = ctypes.CDLL(sys.argv[1])
	count, uuid = ctypes.c_int(), ctypes.create_string_buffer(16)
	cuda.cuInit(0)
	cuda.cuDeviceGetCount(ctypes.byref(count))
	last = b""
	for device in range(count.value):
	    cuda.cuDeviceGetUuid_v2(uuid, device)
	    last += uuid.raw[15:]
	print(count.value, last.hex())
	END
}

check_nvml() {
    local processes
    check "libnvidia-ml: SONAME" libnvidia-ml.so.1 "$(soname "$out/libnvidia-ml.so.1")"
    check "libnvidia-ml: prologues" "" "$(bad_prologues "$out/libnvidia-ml.so.1")"
    check "libnvidia-ml: exports" "$(grep -oE '\bnvml[A-Z]\w+\(' nvml_abi.h | tr -d '(' | sort)" \
        "$(exports "$out/libnvidia-ml.so.1")"
    check "NVML: before init" "1" "$(nvml_say early)"
    check "NVML: one device, no processes" \
        "580.0.standin 1 0 GPU-00000000-0000-0000-0000-000000000000 Stand-in GPU 00000000:01:00.0 mig=3 0:[]" \
        "$(nvml_say)"
    processes=$(mktemp)
    printf '1 100 5000\n0 7 1\n1 200 x\n1 300 12\n' >"$processes"
    check "NVML: processes" "7:[] 0:[(100, 5000), (200, 18446744073709551615), (300, 12)]" \
        "$(STANDIN_NVML_DEVICES=2 STANDIN_NVML_PROCESSES=$processes nvml_say | tail -n 1 |
            grep -o '7:.*')"
    rm -f "$processes"
}

# The answer for the last device: the result for no room, then the processes.
nvml_say() { # [early]
    python3 - "$out/libnvidia-ml.so.1" "$@" <<-'END'
	import ctypes, sys
	nvml = ctypes.CDLL(sys.argv[1])
	class Process(ctypes.Structure):
	    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong),
	                ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]
	def text(call, *arguments):
	    buffer = ctypes.create_string_buffer(96)
	    assert call(*arguments, buffer, 96) == 0
	    return buffer.value.decode()
	count, index, device = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_void_p()
	if len(sys.argv) > 2:
	    sys.exit(print(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))))
	nvml.nvmlInit_v2()
	nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
	said = [text(nvml.nvmlSystemGetDriverVersion), count.value]
	nvml.nvmlDeviceGetHandleByIndex_v2(count.value - 1, ctypes.byref(device))
	nvml.nvmlDeviceGetIndex(device, ctypes.byref(index))
	pci = ctypes.create_string_buffer(68)
	nvml.nvmlDeviceGetPciInfo_v3(device, pci)
	mig = nvml.nvmlDeviceGetMigMode(device, ctypes.byref(count), ctypes.byref(count))
	said += [index.value, text(nvml.nvmlDeviceGetUUID, device), text(nvml.nvmlDeviceGetName, device),
	         pci.raw[36:].rstrip(b"\0").decode(), f"mig={mig}"]
	ask = nvml.nvmlDeviceGetComputeRunningProcesses_v3
	room = ctypes.c_uint(0)
	first = ask(device, ctypes.byref(room), None)
	infos = (Process * max(room.value, 1))()
	again = ask(device, ctypes.byref(room), infos)
	if first:
	    said.append(f"{first}:[]")
	said.append(f"{again}:{[(p.pid, p.used) for p in infos[:room.value]]}")
	print(*said)
	END
}
