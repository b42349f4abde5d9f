//! Network functions, one file each, and the tables they share.
//!
//! Every file of this folder but `inspection`, `tables`, `traffic`, `tunnel` and `parameters` is one function; it registers itself, and
//! nothing lists them.

#![forbid(unsafe_code)]

automod::dir!(pub "src");
