//! The `forebay` command.

use std::process::ExitCode;

use forebay_bench::allocator::AligningAllocator;

/// The C library's allocator. `forebay count` aligns its blocks, so that copies take the same number of instructions in
/// every run.
#[global_allocator]
static MEMORY: AligningAllocator = AligningAllocator;

fn main() -> ExitCode {
    forebay_cli::main()
}
