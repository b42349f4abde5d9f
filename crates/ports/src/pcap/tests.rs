//! Tests of captures.
