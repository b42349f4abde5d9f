//! The page: files that are built from `web/`, and are parts of the program. They have no data of the server: the page
//! reads the data from the API, with the rights of its user.

use std::future::ready;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

use crate::access::hexadecimal;

/// The page may load its own files, and data from this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src \
                      'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
struct File {
    path: &'static str,
    media_type: &'static str,
    content: &'static [u8],
}

/// Includes a file of `web/dist`.
macro_rules! file {
    ($path:literal, $name:literal, $media_type:literal) => {
        File {
            path: $path,
            media_type: $media_type,
            content: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/", $name)),
        }
    };
}

static FILES: [File; 5] = [
    file!("/", "index.html", "text/html; charset=utf-8"),
    file!("/page.js", "page.js", "text/javascript; charset=utf-8"),
    file!("/page.css", "page.css", "text/css; charset=utf-8"),
    file!("/icon.svg", "icon.svg", "image/svg+xml"),
    file!("/licences.md", "licences.md", "text/markdown; charset=utf-8"),
];

/// Returns whether a file of the page is at a path.
pub(crate) fn has(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

/// Returns the routes of the files.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        // The browser keeps the files, and asks each time whether they have changed: an upgrade replaces all of them.
        let tag = format!("\"{}\"", hexadecimal(&<[u8; 32]>::from(Sha256::digest(file.content))));
        router.route(file.path, get(move |headers: HeaderMap| ready(respond(file, &tag, &headers))))
    })
}

fn respond(file: &File, tag: &str, headers: &HeaderMap) -> Response {
    let is_known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|tags| tags.to_str().ok())
        .any(|tags| tags.split(',').any(|known| known.trim().trim_start_matches("W/") == tag));
    let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { file.content.into_response() };
    let etag = HeaderValue::from_str(tag).unwrap_or(HeaderValue::from_static("\"\""));
    for (name, value) in [
        (header::CONTENT_TYPE, HeaderValue::from_static(file.media_type)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::ETAG, etag),
        // A page of another site that opens this one cannot change its address afterwards.
        (header::HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ] {
        response.headers_mut().insert(name, value);
    }
    response
}
