#!/usr/bin/env bash
# The tests that take long, or need more than a compiler: before a release, and for whoever touches what they test.
#
#     scripts/test-long.sh [NAME...]
#
# NAME is one of
#     web        the page of the HTML report: types, form, its tests, and in a browser (nodejs, npm, chromium)
#     no-live    the program without live tracing, built without clang
#     functions  scripts/check-functions.py: what the newest CUDA libraries export (downloads 0.6 GB)
#     book       docs/ as a book (mdbook, which is installed if it is missing: some minutes)
#     benches    the benchmarks, in small
#     load soak  short runs of scripts/bench-load.sh and scripts/soak.sh: counts are compared, times are not
#     recordings long and hostile recordings, and every command on them
#     faults     gpuprobe killed at every stage of a run, round by round
#     package    scripts/release.sh and scripts/test-package.sh (debootstrap, podman)
#     kernels    scripts/test-kernels.sh (QEMU)
# or of a module of tests/e2e/long, as hostile, latency, stress. Without any, all of them are run.
#
# Prints the slowest tests and, as the last line, "N passed, N failed". Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if [[ ${1-} == --help ]]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit
fi
become_root "$root/scripts/test-long.sh" "$@"
cd "$root"
step_seconds=7200
# shellcheck source-path=SCRIPTDIR source=suite.sh
source scripts/suite.sh

parts=(web no-live functions book benches load soak recordings faults package kernels)
modules=()
for file in tests/e2e/long/*; do
    module=$(basename "$file" .rs)
    [[ $module == mod || " ${modules[*]-} " == *" $module "* ]] || modules+=("$module")
done
names=("$@")
[[ $# -gt 0 ]] || names=("${parts[@]}" "${modules[@]}")
wanted=" ${names[*]} "
for name in "${names[@]}"; do
    [[ " ${parts[*]} ${modules[*]} " == *" $name "* ]] ||
        die "no part $name; there are ${parts[*]} ${modules[*]}"
done
wants() {
    [[ $wanted == *" $1 "* ]]
}

ensure_build_packages
ensure_packages python3 libcap2-bin curl openssl prometheus runc tmux
ensure_cargo
ensure_rust_components clippy
as_builder scripts/fetch-pythons.sh || say "no further CPythons: the tests take those that are there"
return_target
need_bpf

export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))}

if wants web; then
    ensure_packages nodejs npm chromium
    # The page of the HTML report is kept in the tree as it was built.
    web=("${builder_prefix[@]}" npm --prefix web --silent)
    check "npm packages of web" "${web[@]}" ci
    check "types and form of web" "${web[@]}" run check
    check "web/dist is what web builds" "${web[@]}" run verify
    count "web" '^# pass ([0-9]+)$' '^# fail ([0-9]+)$' "${web[@]}" run test
    rust_tests "the HTML report in a browser" \
        cargo test --locked --package gpuprobe --test recordings -- --ignored browser
fi

if wants functions; then
    check "functions of the newest CUDA libraries" scripts/check-functions.py
fi

if wants book; then
    mdbook=$(command -v mdbook) || mdbook=$root/target/mdbook/bin/mdbook
    [[ -x $mdbook ]] || "${builder_prefix[@]}" cargo install --locked --root target/mdbook mdbook --version 0.5.4
    check "book" "${builder_prefix[@]}" "$mdbook" build docs
fi

if wants no-live; then
    # No clang is needed: a failing one is put first on the PATH.
    as_builder install -D -m 755 /dev/stdin target/no-live/clang <<'EOF'
#!/bin/sh
echo "clang is called without live tracing" >&2
exit 1
EOF
    rust_tests "without live tracing" "${builder_prefix[@]}" env "PATH=$root/target/no-live:$PATH" \
        cargo test --locked --package gpuprobe --no-default-features --test recordings -- no_live texts::exports
fi

check "build" "${builder_prefix[@]}" cargo test --locked --workspace --exclude gpuprobe-benches --no-run

if wants benches; then
    check "every benchmark compiles" cargo check --locked --package gpuprobe-benches --benches
    # The others have no results to compare.
    check "benchmarks, in small" cargo bench --locked --package gpuprobe-benches --profile dev \
        --bench micro -- --test
fi
if wants load; then
    script_tests "load" python3 -B scripts/bench/load.py \
        --gpuprobe target/debug/gpuprobe --seconds 2 --rates 1000,20000
fi
if wants soak; then
    script_tests "soak" python3 -B scripts/soak/soak.py \
        --gpuprobe target/debug/gpuprobe --minutes 0.15
fi
if wants recordings; then
    rust_tests "recordings, at length" cargo test --locked --package gpuprobe --test recordings -- long::
fi
if wants faults; then
    rust_tests "faults, round by round" env GPUPROBE_ALL_ROUNDS=1 \
        cargo test --locked --package gpuprobe --test faults --no-fail-fast
fi

filters=()
for module in "${modules[@]}"; do
    ! wants "$module" || filters+=("long::$module::")
done
if [[ ${#filters[@]} -gt 0 ]]; then
    rust_tests "end to end" cargo test --locked --package gpuprobe --test e2e --no-fail-fast -- "${filters[@]}"
fi

# These build releases: without what suite.sh sets for tests.
unset RUSTC_WORKSPACE_WRAPPER RUSTFLAGS
if wants package; then
    check "release" scripts/release.sh
    check "packages" scripts/test-package.sh
fi
if wants kernels; then
    script_tests "kernels" scripts/test-kernels.sh
fi
finish
