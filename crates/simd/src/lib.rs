//! The few kernels where one instruction does the work of many, behind safe interfaces.

pub mod prefetch;
