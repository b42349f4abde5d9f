//! The files of the page.

use crate::documents::repository;
use crate::server::{Server, folder};

/// The files with their names in `web/dist` and the beginning of their media types.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "index.html", "text/html"),
    ("/page.js", "page.js", "text/javascript"),
    ("/page.css", "page.css", "text/css"),
    ("/icon.svg", "icon.svg", "image/svg+xml"),
    ("/licences.md", "licences.md", "text/markdown"),
];

#[test]
fn the_page_has_its_files_and_may_load_no_others() {
    let folder = folder();
    let server = Server::start(folder.path());
    for (path, name, media_type) in FILES {
        let response = server.get(path);
        assert_eq!(response.status, 200, "{path}");
        let built = std::fs::read(repository(&format!("web/dist/{name}"))).expect("it was built");
        assert_eq!(response.body.as_bytes(), built, "{path}");
        let header = |name: &str| response.header(name).unwrap_or_else(|| panic!("{path}: no {name}"));
        assert!(header("content-type").starts_with(media_type), "{path}: {}", header("content-type"));
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
        assert_eq!((header("cache-control"), header("x-content-type-options")), ("no-cache", "nosniff"));
        assert_eq!(header("cross-origin-opener-policy"), "same-origin");
        let known = [("If-None-Match", header("etag"))];
        let again = server.send("GET", path, &known, "");
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{path}");
        assert_eq!(server.send("GET", path, &[("If-None-Match", "\"0\", W/\"1\"")], "").status, 200);
        assert_eq!(server.send("POST", path, &[], "").status, 405, "{path}");
    }
    // The page has no other parts: it works without a network.
    let index = server.get("/").body;
    let parts: Vec<_> =
        index.split(['"', '\'']).filter(|part| part.ends_with(".js") || part.ends_with(".css")).collect();
    assert_eq!(parts, ["./page.js", "./page.css"], "{index}");
    assert!(!index.contains("://"), "{index}");
    let policy = server.get("/api/v1/instances");
    assert_eq!(policy.header("content-security-policy"), Some("default-src 'none'; frame-ancestors 'none'"));
}

/// A link in a dashboard leads to the page, and reveals nothing to the dashboard.
#[test]
fn a_link_of_another_site_leads_to_the_page_and_to_nothing_else() {
    let folder = folder();
    let server = Server::start(folder.path());
    let status = |method: &str, path: &str, mode: &str, target: &str| {
        let fetch = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", mode), ("Sec-Fetch-Dest", target)];
        server.send(method, path, &fetch, "").status
    };
    for path in ["/", "/?x"] {
        assert_eq!(status("GET", path, "navigate", "document"), 200, "{path}");
    }
    for (method, path, mode, target) in [
        ("GET", "/", "navigate", "iframe"),
        ("GET", "/", "no-cors", "document"),
        ("POST", "/", "navigate", "document"),
        ("GET", "/page.js", "no-cors", "script"),
        ("GET", "//", "navigate", "document"),
        ("GET", "/api/v1/instances", "navigate", "document"),
        ("GET", "/metrics", "navigate", "document"),
    ] {
        assert_eq!(status(method, path, mode, target), 403, "{method} {path} {mode} {target}");
    }
    let foreign = [("Origin", "https://evil.example"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    assert_eq!(server.send("GET", "/", &foreign, "").status, 403);
}
