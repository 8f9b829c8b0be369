#!/usr/bin/env bash
# Fuzzes every reader of untrusted bytes.
#
#     scripts/fuzz.sh [--seconds N] [--jobs N] [--minimise] [TARGET...]
#
# TARGET is one of fuzz/fuzz_targets; without any, all of them. Each runs for N seconds (3600),
# --jobs of them at a time (as many as there are processors). What they find goes to
# target/fuzz-runs/TARGET/: corpus/ has the inputs that reached something new and is where the next
# run goes on, findings/ those that broke it, log what libFuzzer said. Inputs of up to 2 KiB that reach
# what the kept corpus does not are added to it, tests/untrusted/TARGET.tar.gz; the tests replay these.
#
# --minimise runs nothing: it takes from the kept corpora the inputs that add nothing to the others,
# as grow with every change of the code. What somebody has named stays.
#
# Needs cargo-fuzz, which is installed if it is not there (some minutes). The table at the end
# has the time, processor time and inputs of each; the exit status is 0 only if there is no finding.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

seconds=3600
jobs=$(nproc)
work=fuzz
targets=()
usage="usage: scripts/fuzz.sh [--seconds N] [--jobs N] [--minimise] [TARGET...]"
while [[ $# -gt 0 ]]; do
    case $1 in
    --seconds | --jobs)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "$1 needs a number, 1 or more"
        declare "${1#--}=$2"
        shift 2
        ;;
    --minimise)
        work=minimise
        shift
        ;;
    -*) die "$usage" ;;
    *)
        [[ -e fuzz/fuzz_targets/$1.rs ]] || die "there is no target $1 in fuzz/fuzz_targets"
        targets+=("$1")
        shift
        ;;
    esac
done
if [[ ${#targets[@]} -eq 0 ]]; then
    for target in fuzz/fuzz_targets/*.rs; do
        targets+=("$(basename "$target" .rs)")
    done
fi

# shellcheck disable=SC2317 # called by the trap
cleanup() {
    local job
    for job in $(jobs -p); do
        # Its child processes do not exit with it.
        local children
        children=$(cat "/proc/$job/task/$job/children" 2>/dev/null) || true
        # shellcheck disable=SC2086 # several
        kill "$job" $children 2>/dev/null || true
    done
    wait
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

ensure_build_packages
ensure_cargo_tool fuzz
say "building"
# The sanitizers of a stable compiler are behind this switch.
RUSTC_BOOTSTRAP=1 cargo fuzz build --target-dir target/fuzz

host=$(rustc -vV | sed -n 's/^host: //p')
# The collector and gpuprobe share some names.
export ASAN_OPTIONS=detect_odr_violation=0:detect_leaks=0
runs=$root/target/fuzz-runs

# fuzz TARGET
fuzz() {
    local target=$1 program=target/fuzz/$host/release/$1 folder=$runs/$1
    mkdir -p "$folder/corpus" "$folder/findings"
    unpack "$target"
    local TIMEFORMAT='processor time %U'
    # It says "Done N runs in N second(s)" at its end, and why if it ends before its time. What it
    # measures inputs with is the clock, not the processor's time, hence the patience.
    {
        time "$program" -max_total_time="$seconds" -timeout=300 -rss_limit_mb=3000 \
            -artifact_prefix="$folder/findings/" "$folder/corpus" "$folder/kept" || true
    } >>"$folder/log" 2>&1
    forget_starved "$program" "$folder/findings"
    keep_small "$program" "$folder"
    pack "$target"
}

# The kept corpus of TARGET, as files in target/fuzz-runs/TARGET/kept: unpack TARGET
unpack() {
    local archive=tests/untrusted/$1.tar.gz kept=$runs/$1/kept
    rm -rf "$kept"
    mkdir -p "$kept"
    if [[ -e $archive ]]; then
        tar -xzf "$archive" -C "$kept"
    fi
}

# The other way round. The same inputs make the same archive, whoever packs them and when; where
# only gzip is another, the archive stays as it is.
# pack TARGET
pack() {
    local archive=tests/untrusted/$1.tar.gz packed=$runs/$1/kept.tar
    find "$runs/$1/kept" -type f -printf '%P\0' | LC_ALL=C sort -z |
        tar -cf "$packed" -C "$runs/$1/kept" --format=ustar --mode=644 --mtime=@0 --owner=0 \
            --group=0 --numeric-owner --no-recursion --null --verbatim-files-from -T -
    if [[ ! -e $archive ]] || ! gzip -dc "$archive" | cmp -s - "$packed"; then
        gzip -n9 <"$packed" >"$packed.gz"
        mv "$packed.gz" "$archive"
    fi
    rm "$packed"
}

# minimise TARGET
minimise() {
    local folder=$runs/$1
    unpack "$1"
    rm -rf "$folder/all"
    mv "$folder/kept" "$folder/all"
    mkdir "$folder/kept"
    # libFuzzer names inputs by their hash.
    find "$folder/all" -type f -regextype posix-extended -not -regex '.*/[0-9a-f]{12,40}' \
        -exec cp -t "$folder/kept" {} +
    "target/fuzz/$host/release/$1" -set_cover_merge=1 "$folder/kept" "$folder/all" \
        >"$folder/merge.log" 2>&1 || die "$1: not minimised; see $folder/merge.log"
    say "$1: $(count "$folder/all") inputs, now $(count "$folder/kept")"
    rm -r "$folder/all"
    pack "$1"
}

# The number of files in FOLDER: count FOLDER
count() {
    find "$1" -type f | wc -l
}

# On a busy machine inputs seem slow that are not: those are no findings.
# forget_starved PROGRAM FINDINGS
forget_starved() {
    local finding
    for finding in "$2"/slow-unit-* "$2"/timeout-*; do
        if [[ -e $finding ]] && (ulimit -t 10 && "$1" -timeout=300 "$finding") >/dev/null 2>&1; then
            rm "$finding"
        fi
    done
}

# Adds the inputs with new coverage, if they are small enough to be kept: a page each is enough for
# nearly all of it, and the rest makes megabytes.
# keep_small PROGRAM FOLDER
keep_small() {
    local small
    small=$(mktemp -d "$2/small.XXXXXX")
    find "$2/corpus" -type f -size -2049c -exec cp -t "$small" {} +
    "$1" -set_cover_merge=1 "$2/kept" "$small" >>"$2/merge.log" 2>&1 || true
    rm -r "$small"
}

# The last match in TARGET's log: said TARGET PATTERN, where PATTERN has one group.
said() {
    sed -nE "s/.*$2.*/\\1/p" "$runs/$1/log" | tail -n1
}

if [[ $work == minimise ]]; then
    for target in "${targets[@]}"; do
        minimise "$target"
    done
    exit 0
fi

say "running ${targets[*]} for $seconds s each, $jobs at a time"
for target in "${targets[@]}"; do
    while [[ $(jobs -rp | wc -l) -ge $jobs ]]; do
        wait -n
    done
    fuzz "$target" &
done
wait

findings=0
printf '%-12s %9s %11s %12s %9s %7s %9s\n' \
    target seconds "CPU seconds" inputs features kept findings
for target in "${targets[@]}"; do
    found=$(count "$runs/$target/findings")
    findings=$((findings + found))
    printf '%-12s %9s %11.0f %12s %9s %7d %9d\n' "$target" \
        "$(said "$target" '^Done [0-9]+ runs in ([0-9]+) second')" \
        "$(said "$target" '^processor time ([0-9.]+)$')" \
        "$(said "$target" '^Done ([0-9]+) runs')" \
        "$(said "$target" ' ft: ([0-9]+) ')" \
        "$(count "$runs/$target/kept")" "$found"
done
say "$findings findings, in target/fuzz-runs/*/findings"
[[ $findings -eq 0 ]]
