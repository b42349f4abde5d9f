//! The `forebay` command.

use std::process::ExitCode;

use forebay_bench::allocator::AligningAllocator;

/// The C library's allocator. For `forebay count` it aligns the blocks of memory, so that copies take the same number
/// of instructions in every run.
#[global_allocator]
static MEMORY: AligningAllocator = AligningAllocator;

fn main() -> ExitCode {
    forebay_cli::main()
}
