//! Network functions, one file each, and the tables they share.
//!
//! Every file of this folder is one function and registers itself, so that nothing lists them; but for what several share:
//! `balancer`, `connection`, `encryption`, `inspection`, `interface`, `journal`, `listing`, `martian`, `nat`,
//! `parameters`, `pdu_sessions`, `tables`, `traffic`, `tunnel` and `undecidable`.

#![forbid(unsafe_code)]

automod::dir!(pub "src");
