//! Checks every request before its handler: its host, its origin, its rate, and its token; and adds headers to every
//! response.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;

use crate::access::{Access, Peer, Role};
use crate::page;
use crate::problem::Problem;
use crate::settings::{Listen, Settings};
use crate::shared::Shared;

/// Headers of every response. Responses of the API are no pages, so nothing may be loaded, and nothing may be kept. The
/// files of the page have their own values.
static HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Checks a request, passes it to its handler, and completes the response.
pub(crate) async fn guard(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let is_page = page::has(request.uri().path());
    let mut response = match admit(&shared, &request) {
        Ok(access) => {
            request.extensions_mut().insert(access);
            next.run(request).await
        }
        // The rest of the request may be long: it is not read.
        Err(problem) => problem.with_header(header::CONNECTION, "close").into_response(),
    };
    shared.counts.count(response.status().as_u16());
    for (name, value) in &HEADERS {
        if !is_page || !response.headers().contains_key(name) {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

/// Returns the rights of the request's client, or the reason why the request is refused.
fn admit(shared: &Shared, request: &Request) -> Result<Access, Problem> {
    // Every connection inserts its peer.
    let peer = *request.extensions().get::<Peer>().ok_or_else(|| Problem::new(StatusCode::FORBIDDEN, "no peer"))?;
    let settings = shared.settings();
    // First, so that a page of another site cannot use up the rate of this machine's clients.
    check_host(&settings, &peer, request)?;
    check_origin(&settings, request)?;
    let limit = settings.limits.requests_per_second;
    if let Err(wait) = shared.rates.admit(peer.client(), limit, Instant::now()) {
        let detail = format!("more than {limit} requests per second: wait, or raise `limits.requests_per_second`");
        let seconds = wait.as_secs_f64().ceil().max(1.0);
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
            .with_header(header::RETRY_AFTER, format!("{seconds:.0}")));
    }
    let Some(token) = bearer(request.headers())? else {
        return match peer {
            Peer::Local { uid, .. } => Ok(Access::Local { uid }),
            Peer::Remote { is_public: false, .. } => Ok(Access::Open),
            // The page has no data, and asks its user for the token.
            Peer::Remote { .. } if request.uri().path() == "/healthz" || page::has(request.uri().path()) => {
                Ok(Access::Open)
            }
            Peer::Remote { .. } => Err(unauthorized("this address needs a token")),
        };
    };
    shared.tokens().access(token, &peer, Timestamp::now()).map_err(|error| unauthorized(&error.to_string()))
}

/// Creates the problem of a missing or refused token (RFC 6750 section 3).
fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail).with_header(header::WWW_AUTHENTICATE, "Bearer realm=\"forebay\"")
}

/// Returns the token of a request.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let token = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    match token {
        Some(token) if all.next().is_none() => Ok(Some(token)),
        _ => Err(unauthorized("the header Authorization: allowed is `Bearer TOKEN`, once")),
    }
}

/// Checks that the request names this server. A page of a foreign site whose name resolves to this machine names its
/// own site (DNS rebinding).
fn check_host(settings: &Settings, peer: &Peer, request: &Request) -> Result<(), Problem> {
    if let Peer::Local { .. } = peer {
        // No browser connects to a Unix socket.
        return Ok(());
    }
    let mut all = request.headers().get_all(header::HOST).iter();
    let host = request.uri().authority().map(|authority| authority.host().to_owned());
    let host =
        host.or_else(|| all.next().and_then(|host| host.to_str().ok()).map(|host| without_port(host).to_owned()));
    match host {
        Some(host) if is_own(settings, &host) && all.next().is_none() => Ok(()),
        Some(host) => {
            let host: String = host.chars().take(100).collect();
            let detail = format!("the host '{host}' is not one of this server: add it to `hosts`, or use the address");
            Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail))
        }
        None => Err(Problem::invalid("the header Host is missing")),
    }
}

/// Checks that the request does not come from a page of a foreign site. A link there may lead to the page.
fn check_origin(settings: &Settings, request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let is_foreign = headers.get_all(header::ORIGIN).iter().any(|origin| {
        let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| without_port(host));
        !host.is_some_and(|host| is_own(settings, host))
    });
    let is = |name: &str, value: &[u8]| headers.get(name).is_some_and(|sent| sent.as_bytes() == value);
    // A new document in the window: the foreign page cannot read it (Fetch Metadata, sections 2.2 and 2.3).
    let is_link = request.method() == Method::GET
        && page::has(request.uri().path())
        && is("sec-fetch-mode", b"navigate")
        && is("sec-fetch-dest", b"document");
    if is_foreign || (is("sec-fetch-site", b"cross-site") && !is_link) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "the request comes from a page of another site"));
    }
    Ok(())
}

/// Returns whether a host name or address is one of this server.
fn is_own(settings: &Settings, host: &str) -> bool {
    let plain = host.trim_matches(['[', ']']);
    let is_listed = settings.hosts.iter().any(|own| own.trim_matches(['[', ']']).eq_ignore_ascii_case(plain));
    let address = plain.parse::<std::net::IpAddr>();
    // A foreign site cannot have the name of an address.
    let is_address = address.is_ok_and(|address| {
        settings.addresses().iter().any(|listen| match listen {
            Listen::Tcp(own) => own.ip() == address || own.ip().is_unspecified() || address.is_loopback(),
            Listen::Unix(_) => false,
        })
    });
    is_listed || is_address || plain.eq_ignore_ascii_case("localhost")
}

/// Removes the port of a host.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// A client that may do what the role `ROLE` may do. Handlers take it as an argument.
pub(crate) struct Allowed<const ROLE: u8>(pub(crate) Access, pub(crate) Peer);

/// A client that reads what needs a token or the Unix socket.
pub(crate) type Viewer = Allowed<{ Role::Viewer as u8 }>;
/// A client that changes parts of a pipeline.
pub(crate) type Operator = Allowed<{ Role::Operator as u8 }>;
/// A client that changes configurations.
pub(crate) type Admin = Allowed<{ Role::Admin as u8 }>;

impl<S: Send + Sync, const ROLE: u8> FromRequestParts<S> for Allowed<ROLE> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let access = parts.extensions.get::<Access>().cloned().unwrap_or(Access::Open);
        let peer = *parts.extensions.get::<Peer>().ok_or_else(|| unauthorized("no peer"))?;
        let role = [Role::Viewer, Role::Operator, Role::Admin][usize::from(ROLE)];
        if access.is(role) {
            return Ok(Self(access, peer));
        }
        Err(match &access {
            Access::Token { role: own, .. } => {
                let detail = format!("the token has the role {own:?}, and this needs the role {role:?}").to_lowercase();
                Problem::new(StatusCode::FORBIDDEN, detail)
            }
            _ if role > Role::Viewer && parts.method == Method::GET => {
                unauthorized(&format!("this needs a token with the role {role:?}").to_lowercase())
            }
            _ if parts.method == Method::GET => {
                unauthorized("this needs a token, or a connection to the server's Unix socket")
            }
            _ => unauthorized("a change needs a token: `forebay token` makes one"),
        })
    }
}

/// Fuzzing: no host that is not an address or a listed name is one of the server.
pub(crate) fn fuzz_host(host: &str) {
    let name = without_port(host);
    assert!(host.starts_with(name));
    if is_own(&Settings::default(), name) {
        let plain = name.trim_matches(['[', ']']);
        let is_loopback = plain.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        assert!(plain.eq_ignore_ascii_case("localhost") || is_loopback, "{host:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_removed_and_an_address_is_kept() {
        for (host, name) in [
            ("a.example:80", "a.example"),
            ("a.example", "a.example"),
            ("127.0.0.1:9640", "127.0.0.1"),
            ("[::1]:9640", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
        ] {
            assert_eq!(without_port(host), name, "{host}");
        }
    }

    #[test]
    fn only_hosts_of_the_server_are_its_own() {
        let settings = Settings { hosts: vec!["Edge.example.net".to_owned()], ..Settings::default() };
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "edge.example.net"] {
            assert!(is_own(&settings, host), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.1", "", "edge.example"]
        {
            assert!(!is_own(&settings, host), "{host}");
        }
    }
}
