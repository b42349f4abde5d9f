//! JSON Schemas of requests and responses.

use schemars::{Schema, schema_for};

use crate::request::Request;
use crate::response::Response;

/// Returns the schema of a request.
#[must_use]
pub fn request() -> Schema {
    schema_for!(Request)
}

/// Returns the schema of a response.
#[must_use]
pub fn response() -> Schema {
    schema_for!(Response)
}
