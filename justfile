# What a contributor types; `just` alone lists it.

_:
    @just --list --unsorted

# Build the program as it is released.
build:
    cargo build --release --locked

# Format the Rust and C sources.
format:
    cargo fmt
    clang-format -i bpf/*.h bpf/*.c tests/standin/*.[ch]

# Write the Rust side of bpf/abi*.h again.
abi:
    scripts/abi.py

# Formatting and lints.
check:
    cargo fmt --check
    cargo clippy --locked --workspace --all-targets -- -D warnings
    cargo check --locked --package gpuprobe --no-default-features

# Tests that need neither root nor BPF.
test:
    cargo test --locked --workspace --exclude gpuprobe
    cargo test --locked --lib --test recordings -- --skip root_

# End-to-end tests through the real kernel; NAME selects some: `just e2e gate::`.
e2e NAME='':
    cargo test --locked --test e2e --no-run
    sudo -E env "PATH=$PATH" cargo test --locked --test e2e -- {{NAME}}

# What a change may break, as CI does.
test-all:
    scripts/test.sh

# The rest; NAME selects some: `just test-long hostile soak`.
test-long *NAME:
    scripts/test-long.sh {{NAME}}

# Write the snapshots of help and text reports again.
golden:
    GPUPROBE_WRITE_GOLDEN=1 cargo test --locked --package gpuprobe-cuda --test functions
    GPUPROBE_WRITE_GOLDEN=1 cargo test --locked --lib help
    GPUPROBE_WRITE_GOLDEN=1 cargo test --locked --test recordings texts

# Find the leak of a small program.
demo:
    scripts/demo.sh

# Make what is released, and test it on five distributions.
package:
    scripts/release.sh
    scripts/test-package.sh

# Licenses and advisories of dependencies.
audit:
    scripts/audit.sh
