#!/usr/bin/env bash
# Installs what is missing, builds gpuprobe, and finds the leak of examples/leak.c with it:
# once in a program that runs already, once from its first call.
#
#     scripts/demo.sh
#
# Where there is a GPU and CUDA, the program uses these; otherwise it uses stand-in CUDA
# libraries: the probes, the kernel and the report are the real ones then too. Needs root,
# or sudo. GPUPROBE names a gpuprobe that is installed: none is built then.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "GPUPROBE=${GPUPROBE:-}" "$root/scripts/demo.sh" "$@"
cd "$root"

source=examples/leak.c
program=target/demo/leak
leaking_line=$(grep -n 'cudaMalloc(&frame' "$source" | cut -d: -f1)
gpuprobe=${GPUPROBE:-target/release/gpuprobe}

work=$(mktemp -d)
app=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    if [[ -n $app ]]; then
        kill "$app" 2>/dev/null || true
        wait "$app" 2>/dev/null || true
    fi
    return_target
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- the program that leaks -------------------------------------------------

# build_against FOLDER: links the program with the libcudart there.
build_against() {
    local library
    library=$(find "$1/" -maxdepth 1 -name 'libcudart.so*' | sort | head -n 1)
    [[ -n $library ]] || return 1
    as_builder mkdir -p target/demo
    as_builder cc -g -O1 -o "$program" "$source" "$library" -Wl,-rpath,"$1"
}

prepare_cuda() {
    local nvcc libraries
    nvcc=$(find_nvcc) && libraries=$(find_cuda_libraries "$nvcc") || return 1
    have nvidia-smi && nvidia-smi >/dev/null 2>&1 || return 1
    build_against "$libraries" || return 1
    say "the program uses this machine's GPU"
}

prepare_standin() {
    as_builder make -s -C tests/standin OUT="$root/target/standin" || return 1
    build_against "$root/target/standin" || return 1
    say "the program uses stand-in CUDA libraries: there is no GPU with CUDA here"
}

# ---- showing it ---------------------------------------------------------------

# show COMMAND...: runs it as one would type it, and checks that its report names the line.
show() {
    printf '\n$ %s\n' "$*"
    timeout --kill-after=5 60 "$@" </dev/null >"$work/report" 2>&1 || {
        cat "$work/report" >&2
        die "$1 failed"
    }
    cat "$work/report"
    grep -Eq "leak\.c:$leaking_line\b" "$work/report" ||
        die "the report does not name $source:$leaking_line"
}

if [[ -z ${GPUPROBE:-} ]]; then
    ensure_build_packages
    ensure_cargo
else
    ensure_packages gcc libc6-dev make
fi
check_bpf || exit 1
return_target
if [[ -z ${GPUPROBE:-} ]]; then
    say "building gpuprobe"
    as_builder cargo build --release --locked
fi
prepare_cuda || prepare_standin || die "$source could not be built"

say "$source loses the memory of every tenth frame:"
cat -n "$source"

say "a program that runs already; it is not restarted"
"$program" 1000 &
app=$!
show "$gpuprobe" --pid "$app" --duration 1s --stacks-shown
kill "$app"
wait "$app" 2>/dev/null || true
app=

say "a program from its first call; the exit status says whether it leaks"
status=0
show "$gpuprobe" --stacks-shown -- "$program"
"$gpuprobe" --fail-on leak --output "$work/gate" -- "$program" || status=$?
[[ $status -eq 100 ]] || die "--fail-on leak ended with $status, not 100"
# shellcheck disable=SC2016 # as one would type it
printf '\n$ %s --fail-on leak -- %s; echo $?\n%s\n' "$gpuprobe" "$program" "$status"

printf '\n'
say "every report names $source:$leaking_line, where the lost memory is allocated"
