# shellcheck shell=bash
# Steps of a suite of tests, their counts and their times: for test.sh and test-long.sh, which source lib.sh first.
# shellcheck disable=SC2154 # lib.sh sets root

# A step that hangs must not block the rest.
step_seconds=${step_seconds:-1800}

# Both suites build with clippy's driver, which is the compiler with more warnings, so that what one has built
# serves the other.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver RUSTFLAGS="${RUSTFLAGS:-} -D warnings"

logs=$(mktemp -d)
# One line a step: passed, failed, and the name of a step that failed.
results=$logs/results
touch "$results"

# stop PID: the process and its descendants, which do not end with it.
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

# check NAME COMMAND...: a check counts only if it fails: it is no test.
check() {
    local name=$1 log
    log=$(mktemp -p "$logs" step.XXXXXX)
    shift
    run_step "$name" "$log" "$@" || echo "0 1 $name" >>"$results"
}

# sum PATTERN LOG: adds up the numbers in the group of PATTERN.
sum() {
    sed -nE "s/$1/\\1/p" "$2" | awk '{ total += $1 } END { print total + 0 }'
}

# count NAME PASSED_PATTERN FAILED_PATTERN COMMAND...: counts what passed and failed in its output.
# A command that fails without a failed test (it did not build, or it hung), and one without any
# count, is one failure more.
count() {
    local name=$1 passed_pattern=$2 failed_pattern=$3 status=0 good bad log
    log=$(mktemp -p "$logs" step.XXXXXX)
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

# rust_tests NAME COMMAND...: tests of Rust, with their times.
rust_tests() {
    count "$1" '^test result: .* ([0-9]+) passed; .*' '^test result: .* ([0-9]+) failed; .*' \
        env "CARGO_TARGET_${host_triple}_RUNNER=$root/scripts/timed-test.sh" "${@:2}"
}
host_triple=$(uname -m | tr '[:lower:]' '[:upper:]')_UNKNOWN_LINUX_GNU

# script_tests NAME COMMAND...: a script whose last line is "N passed, N failed".
script_tests() {
    count "$1" '^([0-9]+) passed, [0-9]+ failed$' '^[0-9]+ passed, ([0-9]+) failed$' "${@:2}"
}

# finish: the 20 slowest tests, the steps that failed, and "N passed, N failed"; its status is 0 only if
# all passed.
finish() {
    say "the slowest tests"
    sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 s  \1/p' "$logs"/step.* | sort -rn | sed -n 1,20p
    awk '$3 { if (!some++) print "==> failed:"; $1 = $2 = ""; print "    " $0 }' "$results"
    return_target
    awk '{ passed += $1; failed += $2 } END {
        printf "%d passed, %d failed\n", passed, failed
        exit failed > 0
    }' "$results"
}

# Says so where BPF cannot be used, and counts it as a failure.
need_bpf() {
    local problem
    problem=$(check_bpf) && return
    say "$problem"
    echo "0 1 $problem" >>"$results"
}
