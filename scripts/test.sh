#!/usr/bin/env bash
# Installs missing packages, then runs every check and every test that a change may break:
# a quarter of an hour. scripts/test-long.sh has the rest.
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
# shellcheck source-path=SCRIPTDIR source=suite.sh
source scripts/suite.sh

ensure_build_packages
ensure_packages clang-format shellcheck python3 libcap2-bin curl openssl
ensure_cargo
ensure_rust_components rustfmt clippy
# The tests print the versions of Python that they run with, and fail if these are too few.
as_builder scripts/fetch-pythons.sh || say "no further CPythons: the tests take those that are there"
return_target
need_bpf

mapfile -t c_files < <(find bpf tests/standin tests/e2e -not -path '*/build/*' \
    \( -name '*.[ch]' -o -name '*.cc' \) | sort)
mapfile -t shell_files < <(find scripts tests .ci -name '*.sh' -not -path '*/build/*' | sort)

check "cargo fmt" cargo fmt --check
check "clang-format" clang-format --dry-run -Werror "${c_files[@]}"
check "Rust side of bpf/abi*.h" python3 -B scripts/abi.py --check
check "shellcheck" shellcheck --external-sources "${shell_files[@]}" .ci/run
# What sorts, groups or adds up is in crates/report and crates/analysis; fitting a width (table.rs) is not that.
computing='\.(sort|sort_by|sort_by_key|sort_unstable[a-z_]*|max_by_key|min_by_key|sum|product)(\(|::<)'
# shellcheck disable=SC2016 # $1 is of the inner shell
check "views only write" bash -c '! grep --recursive --line-number --extended-regexp --include="*.rs" \
    --exclude=table.rs -- "$1" crates/views/src' - "$computing"
mapfile -t doctests < <(grep --recursive --files-with-matches '^ *>>> ' --include='*.py' scripts | sort)
check "doctests of scripts" python3 -B -m doctest "${doctests[@]}"
check "tests of scripts" python3 -B -m unittest discover --start-directory tests/scripts

# Incremental compilation makes the first build slower, by a fifth.
if [[ ! -d target/debug ]]; then
    export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
fi
whole=(--locked --workspace --exclude gpuprobe-benches)
# Builds run as the builder; steps that need root write little.
check "build" "${builder_prefix[@]}" cargo test "${whole[@]}" --no-run
check "check without live tracing" "${builder_prefix[@]}" cargo check --locked --package gpuprobe \
    --no-default-features

# Most end-to-end tests wait for the kernel, which takes its time to attach and detach probes.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))}
rust_tests "cargo test" cargo test "${whole[@]}" --no-fail-fast -- --skip long::
finish
