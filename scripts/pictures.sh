#!/usr/bin/env bash
# Makes what the documentation shows: of examples/server.py, on a real GPU.
#
#     scripts/pictures.sh record FOLDER   # recordings and texts: root, an NVIDIA GPU, a python3 with PyTorch
#     scripts/pictures.sh draw FOLDER     # pictures of these into docs/: chromium, nodejs, `npm --prefix web ci`
#
# GPUPROBE names the binary; without it the one on the PATH is taken.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[[ $# -eq 2 ]] || die "usage: scripts/pictures.sh record|draw FOLDER"
gpuprobe=$(realpath "$(command -v "${GPUPROBE:-gpuprobe}")")
mkdir -p "$2"
folder=$(realpath "$2")
programs=()
trap '[[ ${#programs[@]} -eq 0 ]] || kill "${programs[@]}" 2>/dev/null || true' EXIT

# into NAME COMMAND...: a command as it is typed, and what it printed.
into() {
    local out=$folder/$1.txt status=0
    shift
    printf '$ sudo gpuprobe %s\n' "$*" >"$out"
    COLUMNS=90 timeout 60 "$gpuprobe" "$@" >>"$out" 2>&1 </dev/null || status=$?
    printf '(exit status %s)\n' "$status" >>"$out"
}

# start PROGRAM ARGUMENT...: in the background; its id is $started.
start() {
    python3 "$@" >/dev/null 2>&1 </dev/null &
    started=$!
    programs+=("$started")
}

# memory total|used: of GPU 0, MiB.
memory() {
    nvidia-smi --query-gpu="memory.$1" --format=csv,noheader,nounits --id=0
}

record() {
    cd "$root/examples"
    start server.py 600
    local server=$started
    into explain explain --pid "$server"
    into report --pid "$server" --duration 6s
    into host-wide --duration 6s
    kill "$server"
    into gate --fail-on leak -o "$folder/gate-report.txt" -- python3 server.py 24
    into gate-fixed --fail-on leak -o "$folder/gate-fixed-report.txt" -- python3 server.py 24 --fixed
    local all=(--memleak --cudatrace --bandwidth-util --activity)
    into record record "${all[@]}" -o "$folder/server.sqlite" -- python3 server.py 20
    # Two programs that take more together than there is.
    local take="import sys, torch; kept = []
while True: kept.append(torch.empty(1 << 30, dtype=torch.uint8, device='cuda')); len(kept) == int(sys.argv[1]) and input()"
    printf '%s\n' "$take" >"$folder/take.py"
    cd "$folder"
    local total
    total=$(memory total)
    mkfifo "$folder/wait"
    python3 take.py $((total * 3 / 4 / 1024)) <>"$folder/wait" >/dev/null 2>&1 &
    programs+=("$!")
    for ((tries = 0; tries < 150 && $(memory used) < total * 7 / 10; tries++)); do sleep 0.2; done
    into out-of-memory --memleak --duration 40s -o /dev/null -- python3 take.py 1000
    rm -f "$folder/wait" "$folder/take.py"
}

draw() {
    local pages=$folder/pages shots=$folder/shots
    mkdir -p "$pages" "$shots"
    "$gpuprobe" report "$folder/server.sqlite" --html - >"$pages/server.html"
    node "$root/web/test/screenshots.mjs" "$pages/server.html" "$shots" 1280
    cp "$pages/server.html" "$root/docs/report.html"
    "$gpuprobe" report "$folder/server.sqlite" --flamegraph - --weight peak >"$root/docs/pytorch-flamegraph.svg"
    "$gpuprobe" plot "$folder/server.sqlite" --by site -o "$root/docs/pytorch-memory.svg"
    for scheme in light dark; do
        local -A of=([verdicts]=verdicts [overview]=overview [tensors]=tensors-python-cuda- [stacks]=who-holds-it)
        for name in "${!of[@]}"; do
            cp "$shots/${of[$name]}-$scheme.png" "$root/docs/html/$name-$scheme.png"
        done
    done
}

case $1 in
record | draw) "$1" ;;
*) die "usage: scripts/pictures.sh record|draw FOLDER" ;;
esac
