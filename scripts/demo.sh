#!/usr/bin/env bash
# Installs what is missing, builds gpuprobe, and shows `gpuprobe --memleak` on a
# program that leaks: it allocates 8 MiB three times and frees two of them.
#
#     scripts/demo.sh
#
# The program is a CUDA one where there is a GPU and nvcc, a PyTorch one where
# there is a GPU and PyTorch, and otherwise one on stand-in CUDA libraries: the
# probes, the kernel and the report are the real ones then too. Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/demo.sh" "$@"
cd "$root"

gpuprobe=target/release/gpuprobe
wait_seconds=30

work=$(mktemp -d)
app= # process ids, while they run
tracer=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    local pid
    for pid in $tracer $app; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    return_target
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- the program that leaks -------------------------------------------------
#
# Each prepare_* sets, or fails:
#   what          what it is
#   paused        the command that waits for a word before it allocates
#   whole         the command that allocates and ends
#   ready done    what it prints when it waits, and when it has leaked: a
#                 pattern, and how many lines of it
#   leak end      what to tell it to go on, and to end
#   expected      what the report must say

expect_one_block='^8388608 bytes leaked from 1 '

gpu_program() {
    ready=('"step":' 2) done=('"step":' 4) leak='' end=''
}

prepare_cuda() {
    local nvcc libraries
    nvcc=$(find_nvcc) && libraries=$(find_cuda_libraries "$nvcc") || return 1
    say "building tests/gpu/leak.cu with $nvcc"
    as_builder mkdir -p target/demo
    as_builder "$nvcc" -std=c++17 -O1 -o target/demo/leak tests/gpu/leak.cu \
        -cudart shared -Xlinker "-rpath,$libraries" || return 1
    target/demo/leak init >/dev/null || return 1
    gpu_program
    what="a CUDA program on this machine's GPU"
    paused=(target/demo/leak init wait blocks wait)
    whole=(target/demo/leak blocks)
    expected=$expect_one_block
}

prepare_torch() {
    have python3 && python3 -c 'import torch; torch.cuda.init()' 2>/dev/null || return 1
    gpu_program
    what="a PyTorch program on this machine's GPU"
    paused=(python3 tests/gpu/torch_alloc.py init wait first wait)
    whole=(python3 tests/gpu/torch_alloc.py first)
    expected='^[1-9][0-9]* bytes leaked from [1-9]'
}

prepare_standin() {
    as_builder make -s -C tests/standin OUT="$root/target/standin" || return 1
    what="a program on the stand-in CUDA libraries (no GPU with nvcc or PyTorch here)"
    paused=(target/standin/workload)
    whole=(target/standin/workload -c "alloc 8388608 3; free 0 2; exit")
    ready=('^ready ' 1) done=('^ok' 2)
    leak=$'alloc 8388608 3\nfree 0 2' end=exit
    expected=$expect_one_block
}

# ---- running ----------------------------------------------------------------

# has_lines FILE PATTERN COUNT
has_lines() {
    [[ $(grep -c -- "$2" "$1") -ge $3 ]]
}

# wait_for WHAT PID FILE PATTERN COUNT: until the process has printed that.
wait_for() {
    local what=$1 pid=$2 file=$3 deadline=$((SECONDS + wait_seconds))
    shift 2
    until has_lines "$@"; do
        if [[ $SECONDS -ge $deadline ]] || ! kill -0 "$pid" 2>/dev/null; then
            cat "$work"/*.err >&2
            cat "$file" >&2
            die "$what did not come"
        fi
        sleep 0.05
    done
}

# As one would type it.
show_command() {
    local word text=
    for word in "$@"; do
        if [[ $word =~ ^[A-Za-z0-9_./:=-]+$ ]]; then
            text+=" $word"
        else
            text+=" ${word@Q}"
        fi
    done
    printf '\n$%s\n' "$text"
}

# show_report FILE: and see that it says what it must.
show_report() {
    cat "$1"
    if ! grep -Eq -- "$expected" "$1"; then
        cat "$work"/*.err >&2
        die "the report does not say /$expected/"
    fi
}

# A program that runs already; nothing of it is restarted.
show_running_process() {
    say "attaching to a process that runs already"
    mkfifo "$work/orders"
    show_command "${paused[@]}"
    "${paused[@]}" <"$work/orders" >"$work/app.out" 2>"$work/app.err" &
    app=$!
    exec 3>"$work/orders"
    wait_for "the start of ${paused[0]}" "$app" "$work/app.out" "${ready[@]}"

    # The long interval leaves one report to show, the one that Ctrl-C asks for.
    local command=("$gpuprobe" --memleak --interval 1h --pid "$app")
    show_command "${command[@]}"
    "${command[@]}" </dev/null >"$work/pid.out" 2>"$work/pid.err" 3>&- &
    tracer=$!
    wait_for "'gpuprobe: tracing'" "$tracer" "$work/pid.err" '^gpuprobe: tracing' 1
    # The GPU programs need a newline only.
    if [[ -n $leak ]]; then
        printf 'told the program:\n%s\n' "$leak"
    fi
    printf '%s\n' "$leak" >&3
    wait_for "the end of the leak" "$app" "$work/app.out" "${done[@]}"
    kill -INT "$tracer"
    wait "$tracer" || die "gpuprobe failed: $(tail -n 3 "$work/pid.err")"
    tracer=
    show_report "$work/pid.out"

    printf '%s\n' "$end" >&3
    exec 3>&-
    wait "$app" || die "${paused[0]} failed: $(tail -n 3 "$work/app.err")"
    app=
}

# A command from its first call; its exit status is gpuprobe's, and so is its standard output: the
# report is on standard error.
show_command_from_start() {
    say "tracing a command from its first call"
    local command=("$gpuprobe" --memleak -- "${whole[@]}")
    show_command "${command[@]}"
    timeout --kill-after=5 "$wait_seconds" "${command[@]}" \
        </dev/null >"$work/command.out" 2>"$work/command.err" &
    tracer=$!
    wait "$tracer" || die "gpuprobe failed: $(tail -n 3 "$work/command.err")"
    tracer=
    show_report "$work/command.err"
}

ensure_build_packages
check_bpf || exit 1
ensure_cargo
return_target
say "building gpuprobe"
as_builder cargo build --release --locked
prepare_cuda || prepare_torch || prepare_standin || die "no program could be built to look at"
say "showing $what"

show_running_process
show_command_from_start

printf '\n'
say "both reports are as they should be"
