#!/usr/bin/env bash
# Installs missing packages, then runs every check and every test.
#
#     scripts/test.sh
#
# The last line is "N passed, N failed"; the exit status is 0 only if all
# passed. Needs root, or sudo: the end-to-end tests trace the stand-in CUDA
# through the real kernel. Where BPF cannot be used they fail, and this says why.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/test.sh" "$@"
cd "$root"

# A step that hangs must not block the rest. The longest has taken 841 s, where other programs used the caches.
step_seconds=1800

logs=$(mktemp -d)
# One line a step: passed, failed, and the name of a step that failed.
results=$logs/results
touch "$results"

# stop PID: the process, and what it has started, which does not end with it.
# shellcheck disable=SC2317 # called by the trap
stop() {
    local child
    # shellcheck disable=SC2013 # words
    for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        stop "$child"
    done
    kill "$1" 2>/dev/null || true
}

# shellcheck disable=SC2317 # called by the trap
cleanup() {
    local job
    for job in $(jobs -p); do
        stop "$job"
    done
    wait
    return_target
    rm -rf "$logs"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# run_step NAME LOG COMMAND...: shows the output while the command runs and keeps it. The command
# writes to a file, not to a pipe, so that a process that it leaves behind cannot block this script.
run_step() {
    local name=$1 log=$2 status=0 began=$SECONDS job
    shift 2
    say "$name"
    timeout --kill-after=10 "$step_seconds" "$@" </dev/null >"$log" 2>&1 &
    job=$!
    tail --pid="$job" --sleep-interval=0.2 -n +1 -f "$log" &
    wait "$job" || status=$?
    wait $!
    say "$name took $((SECONDS - began)) s"
    if [[ $status -eq 124 || $status -eq 137 ]]; then
        say "$name: stopped after $step_seconds s"
    fi
    return "$status"
}

# A check counts only if it fails: it is no test.
check() {
    local name=$1 log
    log=$(mktemp -p "$logs")
    shift
    run_step "$name" "$log" "$@" || echo "0 1 $name" >>"$results"
}

# sum PATTERN LOG: adds up the numbers in the group of PATTERN.
sum() {
    sed -nE "s/$1/\\1/p" "$2" | awk '{ total += $1 } END { print total + 0 }'
}

# tests NAME PASSED_PATTERN FAILED_PATTERN COMMAND...: counts what passed and failed in its output.
# A command that fails without a failed test (it did not build, or it hung), and one without any
# count, is one failure more.
tests() {
    local name=$1 passed_pattern=$2 failed_pattern=$3 status=0 good bad log
    log=$(mktemp -p "$logs")
    shift 3
    run_step "$name" "$log" "$@" || status=$?
    good=$(sum "$passed_pattern" "$log")
    bad=$(sum "$failed_pattern" "$log")
    if [[ $bad -eq 0 && ($status -ne 0 || $good -eq 0) ]]; then
        bad=1
    fi
    [[ $bad -ne 0 ]] || name=
    echo "$good $bad $name" >>"$results"
}

# beside STEPS: runs a function of steps beside those that follow, up to `shown STEPS`.
declare -A beside
beside() {
    "$1" >"$logs/$1.log" 2>&1 &
    beside[$1]=$!
}
shown() {
    wait "${beside[$1]}" || echo "0 1 $1" >>"$results"
    cat "$logs/$1.log"
}

ensure_build_packages
ensure_packages clang-format shellcheck python3 libcap2-bin prometheus iproute2 curl openssl runc tmux \
    nodejs npm chromium patch
ensure_cargo
ensure_rust_components rustfmt clippy
# The tests print the versions of Python that they run with, and fail if these are too few.
as_builder scripts/fetch-pythons.sh || say "no further CPythons: the tests take those that are there"
return_target

bpf_problem=$(check_bpf) || true
if [[ -n $bpf_problem ]]; then
    say "$bpf_problem"
    echo "0 1 $bpf_problem" >>"$results"
fi

mapfile -t c_files < <(find bpf tests/standin tests/e2e -not -path '*/build/*' \
    \( -name '*.[ch]' -o -name '*.cc' \) | sort)
mapfile -t shell_files < <(find scripts tests .ci -name '*.sh' -not -path '*/build/*' | sort)

check "cargo fmt" cargo fmt --check
check "clang-format" clang-format --dry-run -Werror "${c_files[@]}"
check "shellcheck" shellcheck --external-sources "${shell_files[@]}" .ci/run
check "gpu_check" python3 -B -m doctest scripts/gpu_check/expect.py \
    scripts/gpu_check/expect_launches.py scripts/gpu_check/expect_copies.py \
    scripts/gpu_check/expect_kinds.py scripts/gpu_check/expect_stacks.py \
    scripts/gpu_check/expect_stress.py scripts/gpu_check/expect_activity.py
check "doctests of scripts" python3 -B -m doctest scripts/stress/pacing.py \
    scripts/stress/accounts.py scripts/stress/options.py scripts/pid_monitor.py \
    scripts/plot_monitor.py scripts/bench/load.py scripts/bench/scenario.py \
    scripts/bench/bpf_time.py scripts/bench/python_frames.py scripts/bench/serve.py scripts/bench/tensors.py scripts/soak/soak.py \
    scripts/soak/bpf_objects.py
check "tests of scripts" python3 -B -m unittest discover --start-directory tests/scripts
check "words" python3 -B scripts/words.py

libtest_passed='^test result: .* ([0-9]+) passed; .*'
libtest_failed='^test result: .* ([0-9]+) failed; .*'
script_passed='^([0-9]+) passed, [0-9]+ failed$'
script_failed='^[0-9]+ passed, ([0-9]+) failed$'

# Both use one processor, and are done before the tests are built.
# shellcheck disable=SC2317 # called by beside
web_and_standin() {
    # In the place where the tests look for the stand-in, so that it is built once.
    tests "stand-in CUDA" "$script_passed" "$script_failed" \
        tests/standin/selfcheck.sh target/standin
    # The page of the HTML report is kept in the tree as it was built.
    local web=("${builder_prefix[@]}" npm --prefix web --silent)
    check "npm packages of web" "${web[@]}" ci
    check "types and form of web" "${web[@]}" run check
    check "web/dist is what web builds" "${web[@]}" run verify
    tests "web" '^# pass ([0-9]+)$' '^# fail ([0-9]+)$' "${web[@]}" run test
}
beside web_and_standin

# Incremental compilation makes the first build slower, by a fifth.
if [[ ! -d target/debug ]]; then
    export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
fi
# Everything is compiled once: by clippy's driver, which is the compiler with more warnings.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver RUSTFLAGS="${RUSTFLAGS:-} -D warnings"

# Without live tracing no clang is needed: a failing one is put first on the PATH. This runs before
# the tests are built, which then leave the full program in its place.
as_builder install -D -m 755 /dev/stdin target/no-clang/clang <<'EOF'
#!/bin/sh
echo "clang is called without live tracing" >&2
exit 1
EOF
# Builds run as the builder; steps that need root write little.
without_live=("${builder_prefix[@]}" env "PATH=$root/target/no-clang:$PATH" cargo test --locked
    --package gpuprobe --no-default-features)
check "clippy without live tracing" "${without_live[@]}" --all-targets --no-run
tests "cargo test without live tracing" "$libtest_passed" "$libtest_failed" "${without_live[@]}" \
    --test recordings -- no_live golden

check "clippy" "${builder_prefix[@]}" cargo test --locked --workspace --all-targets --no-run
shown web_and_standin

# Most end-to-end tests wait for the kernel, which takes its time to attach and detach probes, and
# use a third of a processor.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))}
tests "cargo test" "$libtest_passed" "$libtest_failed" \
    cargo test --locked --workspace --no-fail-fast

# Short runs: counts are compared, times are not.
# shellcheck disable=SC2317 # called by beside
load_and_soak() {
    tests "load" "$script_passed" "$script_failed" python3 -B scripts/bench/load.py \
        --gpuprobe target/debug/gpuprobe --seconds 2 --rates 1000,20000
    tests "soak" "$script_passed" "$script_failed" python3 -B scripts/soak/soak.py \
        --gpuprobe target/debug/gpuprobe --minutes 0.15
}
beside load_and_soak
tests "the HTML report in a browser" "$libtest_passed" "$libtest_failed" \
    cargo test --locked --package gpuprobe --test recordings -- --ignored browser
shown load_and_soak

awk '$3 { if (!some++) print "==> failed:"; $1 = $2 = ""; print "    " $0 }' "$results"
return_target
awk '{ passed += $1; failed += $2 } END {
    printf "%d passed, %d failed\n", passed, failed
    exit failed > 0
}' "$results"
