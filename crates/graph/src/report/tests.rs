//! Reports of a small run.
