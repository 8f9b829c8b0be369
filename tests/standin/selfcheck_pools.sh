#!/bin/bash
# Part of selfcheck.sh: virtual memory management, stream-ordered memory, sharing
# between processes, and the memory of graphs.
#
# shellcheck disable=SC2154 # out is set by selfcheck.sh

# The named fields of the last status, in the order of the status.
fields() { # PROGRAM COMMANDS FIELD...
    last_reply "$1" "$2; status" | tr ' ' '\n' | grep -E "^($(echo "${*:3}" | tr ' ' '|'))=" | xargs
}

# The same with the fields that most checks need.
counts() { # PROGRAM COMMANDS KIND
    fields "$1" "$2" live bytes allocs frees failed "$3_live" "$3_bytes"
}

expected() { # LIVE BYTES ALLOCS FREES FAILED KIND LIVE BYTES
    echo "live=$1 bytes=$2 allocs=$3 frees=$4 failed=$5 $6_live=$7 $6_bytes=$8"
}

check_async() { # PROGRAM
    check "$1: async" "$(expected 2 8192 3 1 0 async 2 8192)" \
        "$(counts "$1" 'async 4096 3; afree 0' async)"
    check "$1: async, freed by the other free" "$(expected 0 0 5 5 0 async 0 0)" \
        "$(counts "$1" 'async 4096 3; alloc 512 2; afree 0 3 plain; freeasync 0 2' async)"
    check "$1: async, freed twice" "$(expected 0 0 1 1 1 async 0 0)" \
        "$(counts "$1" 'async 4096; afree 0; afree 0' async)"
    check "$1: async of no address" "frees=0 failed=0 nullfrees=1" \
        "$(fields "$1" 'freeasync null' frees failed nullfrees)"
    check "$1: async survives a reset" "$(expected 1 4096 3 0 0 async 1 4096)" \
        "$(counts "$1" 'async 4096; alloc 512 2; reset' async)"
    check "$1: and is freed after it" "$(expected 0 0 3 1 0 async 0 0)" \
        "$(counts "$1" 'async 4096; alloc 512 2; reset; afree 0' async)"
    check "$1: a pool" "ok threshold=0 reserved=33554432 reserved_high=67108864 used=4096 used_high=40000000" \
        "$(last_reply "$1" 'pool create; poolalloc 0 20000000 2; afree 0 2; poolalloc 0 4096; pool trim 0; pool attr 0')"
    check "$1: reserved is kept until a trim" "ok reserved=67108864" \
        "$(last_reply "$1" 'pool create; poolalloc 0 20000000 2; afree 0 2; pool attr 0 reserved')"
    check "$1: a trim keeps what it is told to" "ok reserved=33554432" \
        "$(last_reply "$1" 'pool create; poolalloc 0 20000000 2; afree 0 2; pool trim 0 5; pool attr 0 reserved')"
    check "$1: a destroyed pool's memory stays" "$(expected 1 4096 2 1 0 async 1 4096)" \
        "$(counts "$1" 'pool create; poolalloc 0 4096 2; pool destroy 0; afree 0' async)"
    check "$1: a destroyed pool is none" "error CUDA error 1" \
        "$(last_reply "$1" 'pool create; poolalloc 0 4096; pool destroy 0; pool attr 0')"
    check "$1: the default pool stays" "error CUDA error 1" \
        "$(last_reply "$1" 'pool default; pool destroy 0')"
    check "$1: a device uses another pool" "ok used=4096" \
        "$(last_reply "$1" 'pool create; pool use 0; async 4096; pool attr 0 used')"
    check "$1: memory of a pool on the host is not the GPU's" "$(expected 0 0 1 0 0 async 1 4096)" \
        "$(counts "$1" 'pool create host; poolalloc 0 4096' async)"
    check "$1: a failing allocation" "$(expected 1 4096 1 0 1 async 1 4096)" \
        "$(counts "$1" 'fail cuMemAllocAsync 1 2; fail cuMemAllocAsync_ptsz 1 2; async 4096 2; fail cuMemAllocAsync 0 0; fail cuMemAllocAsync_ptsz 0 0' async)"
}

check_virtual() { # PROGRAM
    local map='vcreate 2097152 2; vreserve 8388608; vmap 0 0; vmap 1 0 2097152'
    check "$1: physical memory" "$(expected 2 4194304 3 1 0 vmm 2 4194304)" \
        "$(counts "$1" 'vcreate 2097152 3; vrelease 0' vmm)"
    check "$1: sizes are multiples of 2 MiB" "$(expected 0 0 0 0 1 vmm 0 0)" \
        "$(counts "$1" 'vcreate 4096' vmm)"
    check "$1: mapped memory outlives its handle" "$(expected 2 4194304 2 2 0 vmm 2 4194304)" \
        "$(counts "$1" "$map; vrelease 0; vrelease 1" vmm)"
    check "$1: until it is unmapped" "$(expected 0 0 2 2 0 vmm 0 0)" \
        "$(counts "$1" "$map; vrelease 0; vrelease 1; vunmap 0x700000000000 4194304" vmm)"
    check "$1: a handle outlives its mapping" "$(expected 2 4194304 2 0 0 vmm 2 4194304)" \
        "$(counts "$1" "$map; vunmap 0x700000000000 4194304" vmm)"
    check "$1: part of a mapping" "error CUDA error 1" \
        "$(last_reply "$1" 'vcreate 4194304; vreserve 8388608; vmap 0 0; vunmap 0x700000000000 2097152')"
    check "$1: a mapping on another" "error CUDA error 1" "$(last_reply "$1" "$map; vmap 1 0")"
    check "$1: access to what is mapped" "ok" \
        "$(last_reply "$1" "$map; vaccess 0x700000000000 4194304")"
    check "$1: access to what is not" "error CUDA error 1" \
        "$(last_reply "$1" "$map; vaccess 0x700000000000 6291456")"
    check "$1: addresses in use" "error CUDA error 1" "$(last_reply "$1" "$map; vfreeaddr 0")"
    check "$1: a retained handle" "$(expected 2 4194304 2 3 1 vmm 2 4194304)" \
        "$(counts "$1" "$map; vrelease 0; vretain 0; vrelease 0 2; vrelease 1" vmm)"
    check "$1: released once too often" "ok frees=1 live=0 failed=1 error=1" \
        "$(last_reply "$1" 'vcreate 2097152; vrelease 0 2')"
    check "$1: physical memory on the host is not the GPU's" \
        "$(expected 0 0 1 0 0 vmm 1 2097152)" "$(counts "$1" 'vcreate 2097152 host' vmm)"
    check "$1: physical memory survives a reset" "$(expected 1 2097152 2 0 0 vmm 1 2097152)" \
        "$(counts "$1" 'vcreate 2097152; alloc 512; reset' vmm)"
    check "$1: physical memory runs out" "$(expected 1 2097152 1 0 1 vmm 1 2097152)" \
        "$(STANDIN_DEVICE_BYTES=3000000 counts "$1" 'vcreate 2097152 2' vmm)"
    check "$1: and comes back" "$(expected 0 0 2 2 0 vmm 0 0)" \
        "$(STANDIN_DEVICE_BYTES=3000000 counts "$1" 'vcreate 2097152; vfreeall; vcreate 2097152; vfreeall' vmm)"
    check "$1: import of an own export" "$(expected 1 2097152 2 0 0 imported 1 2097152)" \
        "$(counts "$1" 'vcreate 2097152; vexport 0; vimport 3 2097152' imported)"
    check "$1: expandable segments" "$(expected 0 0 20 20 0 vmm 0 0)" \
        "$(counts "$1" 'vexpand 2097152 20' vmm)"
    check "$1: expandable segments, kept" "$(expected 20 41943040 20 20 0 vmm 20 41943040)" \
        "$(counts "$1" 'vexpand 2097152 20 keep' vmm)"
    check "$1: random calls" "live=0 bytes=0 failed=0 vmm_live=0 vmm_bytes=0" \
        "$(fields "$1" 'vrandom 7 200000; vrandom 8 1000 threads=1; vfreeall' live bytes failed vmm_live vmm_bytes)"
    check "$1: random calls leave no reservation" "ok 0 0x700000000000" \
        "$(last_reply "$1" 'vrandom 7 20000; vfreeall; vreserve 2097152' | sed 's/^ok [0-9]*/ok 0/')"
}

check_graph_memory() { # PROGRAM
    local at=0x700000000000
    check "$1: a node takes no memory" "$(expected 0 0 0 0 0 graph 0 0)" \
        "$(counts "$1" 'gnew; galloc 0 4096' graph)"
    check "$1: a launch does" "$(expected 1 4096 0 0 0 graph 1 4096)" \
        "$(counts "$1" 'gnew; galloc 0 4096; glaunch 0' graph)"
    check "$1: once" "$(expected 1 4096 0 0 1 graph 1 4096)" \
        "$(counts "$1" 'gnew; galloc 0 4096; glaunch 0 2' graph)"
    check "$1: again after a free" "$(expected 1 4096 0 1 0 graph 1 4096)" \
        "$(counts "$1" 'gnew; galloc 0 4096; glaunch 0; afree 0 plain; glaunch 0' graph)"
    check "$1: freed in its graph" "$(expected 0 0 0 0 0 graph 0 0)" \
        "$(counts "$1" "gnew; galloc 0 4096; gfree 0 $at; glaunch 0 3" graph)"
    check "$1: freed by another graph" "$(expected 0 0 0 0 0 graph 0 0)" \
        "$(counts "$1" "gnew; galloc 0 4096; gnew; gfree 1 $at; glaunch 0; glaunch 1" graph)"
    check "$1: nodes by type" "$(expected 1 8192 0 0 0 graph 1 8192)" \
        "$(counts "$1" "gnew; galloc 0 4096 node; galloc 0 8192 node2; gfree 0 $at node; glaunch 0" graph)"
    check "$1: captured" "$(expected 1 8192 0 0 0 graph 1 8192)" \
        "$(counts "$1" "gcapture; galloc 0 4096; galloc 0 8192; gfree 0 $at; gendcapture 0; glaunch 0" graph)"
    check "$1: live memory outlives its graph" "$(expected 1 4096 0 0 0 graph 1 4096)" \
        "$(counts "$1" 'gnew; galloc 0 4096; glaunch 0; gdestroy 0; gtrim' graph)"
}

# A handle of one process, opened by another.
check_ipc() { # PROGRAM
    local ready pid address handle opened
    coproc WORKLOAD { exec "$out/$1" 2>&1; }
    read -r ready pid <&"${WORKLOAD[0]}"
    printf 'alloc 10000\nipcget 0\n' >&"${WORKLOAD[1]}"
    read -r ready address <&"${WORKLOAD[0]}"
    read -r ready handle <&"${WORKLOAD[0]}"
    check "$1: the PID in a handle" "$pid" "$((0x$(echo "${handle:16:8}" | fold -w2 | tac | tr -d '\n')))"
    check "$1: the size in a handle" 10000 \
        "$((0x$(echo "${handle:32:16}" | fold -w2 | tac | tr -d '\n')))"
    echo "ipcget 0 5000" >&"${WORKLOAD[1]}"
    read -r ready opened <&"${WORKLOAD[0]}"
    check "$1: a handle is the allocation's" "$handle" "$opened"
    check "$1: opened twice" "$(expected 0 0 2 0 0 imported 1 10000)" \
        "$(counts "$1" "ipcopen $handle; ipcopen $handle" imported)"
    check "$1: closed once" "$(expected 0 0 2 1 0 imported 1 10000)" \
        "$(counts "$1" "ipcopen $handle; ipcopen $handle; ipcclose 0" imported)"
    check "$1: closed too often" "$(expected 0 0 2 2 1 imported 0 0)" \
        "$(counts "$1" "ipcopen $handle; ipcopen $handle; ipcclose 0; ipcclose 0; ipcclose 0" imported)"
    echo "ipcopen $handle" >&"${WORKLOAD[1]}"
    read -r ready opened <&"${WORKLOAD[0]}"
    check "$1: opened by its owner" "failed=1 error=201" "$opened"
    echo exit >&"${WORKLOAD[1]}"
    wait "$WORKLOAD_PID" 2>/dev/null
    : "$ready $address"
}

check_sharing() { # PROGRAM
    check_ipc "$1"
    check "$1: imported by a child" "live=0 allocs=1 imported_live=1 imported_bytes=2097152" \
        "$(last_reply "$1" 'vcreate 2097152; vexport 0; fork vimport 3 2097152' | tr ' ' '\n' |
            grep -E '^(live|allocs|imported_live|imported_bytes)=' | xargs)"
    check "$1: external memory" "$(expected 0 0 1 0 0 imported 1 65536)" \
        "$(counts "$1" 'extimport 65536; extmap 0; extunmap 0x7d3320000000' imported)"
    check "$1: external memory, destroyed" "$(expected 0 0 1 1 1 imported 0 0)" \
        "$(counts "$1" 'extimport 65536; extdestroy 0; extdestroy 0' imported)"
    check "$1: the file of external memory is closed" "ok 3" \
        "$(last_reply "$1" 'extimport 4096; extdestroy 0; vcreate 2097152; vexport 1')"
    check "$1: a pool's pointer" "$(expected 1 4096 2 0 0 imported 1 4096)" "$(check_pointer "$1")"
}

# A pool and a pointer into it, imported by the process that exported them.
check_pointer() { # PROGRAM
    coproc WORKLOAD { exec "$out/$1" 2>&1; }
    local ready pool fd pointer
    read -r ready <&"${WORKLOAD[0]}"
    printf 'pool create\npoolalloc 0 4096\nptrexport 0\n' >&"${WORKLOAD[1]}"
    read -r ready ready pool <&"${WORKLOAD[0]}"
    read -r ready <&"${WORKLOAD[0]}"
    read -r ready pointer <&"${WORKLOAD[0]}"
    echo "poolexport $pool" >&"${WORKLOAD[1]}"
    read -r ready fd <&"${WORKLOAD[0]}"
    echo "poolimport $fd" >&"${WORKLOAD[1]}"
    read -r ready pool <&"${WORKLOAD[0]}"
    printf 'ptrimport %s %s 4096\nstatus\n' "$pool" "$pointer" >&"${WORKLOAD[1]}"
    read -r ready <&"${WORKLOAD[0]}"
    read -r ready <&"${WORKLOAD[0]}"
    echo exit >&"${WORKLOAD[1]}"
    wait "$WORKLOAD_PID" 2>/dev/null
    echo "$ready" | tr ' ' '\n' | grep -E '^(live|bytes|allocs|frees|failed|imported_live|imported_bytes)=' | xargs
}

# The driver function behind each runtime call.
check_pool_nesting() { # PROGRAM SUFFIX
    check "$1: async calls" "ok cudaMallocAsync$2=3 cuMemAllocAsync$2=3 cudaFreeAsync$2=2 cuMemFreeAsync$2=2" \
        "$(calls "$1" 'async 4096 3; kfree 0 2' "cudaMallocAsync$2 cuMemAllocAsync$2 cudaFreeAsync$2 cuMemFreeAsync$2")"
    check "$1: pool calls" "ok cudaMallocFromPoolAsync$2=3 cuMemAllocFromPoolAsync$2=3 cudaMemPoolCreate=1 cuMemPoolCreate=1" \
        "$(calls "$1" 'pool create; poolalloc 0 4096 3' "cudaMallocFromPoolAsync$2 cuMemAllocFromPoolAsync$2 cudaMemPoolCreate cuMemPoolCreate")"
    check "$1: external calls" "ok cudaImportExternalMemory=1 cuImportExternalMemory=1 cudaDestroyExternalMemory=1 cuDestroyExternalMemory=1" \
        "$(calls "$1" 'extimport 4096; extdestroy 0' cudaImportExternalMemory cuImportExternalMemory cudaDestroyExternalMemory cuDestroyExternalMemory)"
    check "$1: graph calls" "ok cudaGraphAddMemAllocNode=2 cuGraphAddMemAllocNode=2 cuGraphAddMemFreeNode=1" \
        "$(calls "$1" 'gnew; galloc 0 4096; galloc 0 4096; gfree 0 0x700000000000' cudaGraphAddMemAllocNode cuGraphAddMemAllocNode cuGraphAddMemFreeNode)"
}

# Under the thread sanitizer, which selfcheck.sh has built into DIR.
check_pool_threads() { # DIR
    local program
    for program in workload workload_driver; do
        check "$program: thread sanitizer, virtual memory" "live=0 bytes=0 failed=0" \
            "$("$1/$program" -c 'async 4096 3; vrandom 3 20000 threads=8; vfreeall; afree 0 3; status' \
                </dev/null 2>&1 | sed '/^done /d' | tail -n 1 | tr ' ' '\n' |
                grep -E '^(live|bytes|failed)=' | xargs)"
    done
}

check_pools() {
    local program
    for program in workload workload_static workload_driver workload_ptsz; do
        check_async "$program"
        check_virtual "$program"
        check_graph_memory "$program"
        check_sharing "$program"
    done
    check_pool_nesting workload ''
    check_pool_nesting workload_static ''
    check_pool_nesting workload_ptsz _ptsz
}
