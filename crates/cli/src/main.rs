//! The `forebay` command.

use std::process::ExitCode;

use forebay_lean::allocator::AligningAllocator;

/// The C library's allocator. For `forebay count` it aligns blocks, so that copies take equally many instructions in each run.
#[global_allocator]
static MEMORY: AligningAllocator = AligningAllocator;

fn main() -> ExitCode {
    forebay_cli::main()
}
