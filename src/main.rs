//! The `gpuprobe` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuprobe::live::guard_if_asked().unwrap_or_else(gpuprobe::cli::main)
}
