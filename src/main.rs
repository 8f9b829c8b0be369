//! The `gpuprobe` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuprobe::cli::main()
}
