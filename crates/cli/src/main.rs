//! The `forebay` command.

use std::process::ExitCode;

use forebay_measure::placement::Memory;

/// The C library's, which `forebay count` asks to place what it gives: copies take as many instructions in every run.
#[global_allocator]
static MEMORY: Memory = Memory;

fn main() -> ExitCode {
    forebay_cli::main()
}
