//! Tests of the operations, without a process and with the rights of the test's user.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use super::*;

/// A folder of an instance, and a listener in it.
struct Scene {
    /// The folder, which is removed at the end.
    _folder: tempfile::TempDir,
    /// Its path without links.
    root: PathBuf,
    listener: UnixListener,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        std::fs::create_dir_all(folder.path().join("run/named")).expect("a writable folder");
        let root = folder.path().canonicalize().expect("a folder");
        let listener = UnixListener::bind(root.join("run/gw-7.sock")).expect("a socket");
        Self { _folder: folder, root, listener }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the operations for the folder `run`.
    fn operations(&self) -> Operations<'static> {
        Operations::new(&[self.at("run")], &|_| {})
    }
}

fn respond(operations: &Operations<'_>, request: &Value) -> (Value, Prepared) {
    let prepared = operations.respond(request.to_string().as_bytes());
    (serde_json::from_slice(&prepared.message).expect("JSON"), prepared)
}

#[test]
fn a_helper_describes_itself() {
    let scene = Scene::new();
    let (response, prepared) = respond(&scene.operations(), &json!({ "do": "identity" }));
    let uid = rustix::process::getuid().as_raw();
    let operations = ["identity", "sockets", "connect"];
    assert_eq!(response, json!({ "ok": { "uid": uid, "pid": std::process::id(), "operations": operations } }));
    assert!(prepared.connection.is_none() && prepared.refusal.is_none());
    for name in OPERATIONS {
        let (response, _) = respond(&scene.operations(), &json!({ "do": name, "path": "/none" }));
        let error = response["error"].as_str().expect("a wrong request");
        assert!(!error.contains("unknown variant"), "{name} is an operation: {error}");
    }
}

#[test]
fn sockets_are_listed_and_other_files_are_not() {
    let scene = Scene::new();
    let _named = UnixListener::bind(scene.at("run/named/edge.sock")).expect("a socket");
    let _outside = UnixListener::bind(scene.at("other-1.sock")).expect("a socket");
    std::fs::write(scene.at("run/file-2.sock"), "").expect("a writable folder");
    symlink(scene.at("other-1.sock"), scene.at("run/link-3.sock")).expect("a writable folder");
    std::fs::create_dir(scene.at("run/folder-4.sock")).expect("a writable folder");
    let (response, _) = respond(&scene.operations(), &json!({ "do": "sockets" }));
    let page: SocketPage = serde_json::from_value(response["ok"].clone()).expect("a list");
    let own: Vec<_> = page.sockets.into_iter().filter(|it| it.path.starts_with(&scene.root)).collect();
    let expected = [
        ListedSocket { name: "gw".to_owned(), pid: Some(7), path: scene.at("run/gw-7.sock") },
        ListedSocket { name: "edge".to_owned(), pid: None, path: scene.at("run/named/edge.sock") },
    ];
    assert_eq!(own, expected);
}

#[test]
fn a_listed_socket_is_connected_to() {
    let scene = Scene::new();
    symlink(scene.at("run"), scene.at("link")).expect("a writable folder");
    let through_link = Operations::new(&[scene.at("link")], &|_| {});
    for operations in [scene.operations(), through_link] {
        let (response, prepared) = respond(&operations, &json!({ "do": "connect", "path": scene.at("run/gw-7.sock") }));
        assert_eq!(response, json!({ "ok": {} }));
        let mut client = prepared.connection.expect("a connection");
        let (mut server, _) = scene.listener.accept().expect("a connection");
        client.write_all(b"ping").expect("there is room");
        let mut bytes = [0; 4];
        server.read_exact(&mut bytes).expect("the bytes wait");
        assert_eq!((&bytes, client.write_timeout().expect("a socket")), (b"ping", None));
    }
}

#[test]
fn paths_outside_the_list_are_refused() {
    let scene = Scene::new();
    let _outside = UnixListener::bind(scene.at("other-1.sock")).expect("a socket");
    std::fs::write(scene.at("run/file-2.sock"), "").expect("a writable folder");
    symlink(scene.at("other-1.sock"), scene.at("run/link-3.sock")).expect("a writable folder");
    symlink(scene.at("run"), scene.at("link")).expect("a writable folder");
    let text = |name: &str| format!("{}/{name}", scene.root.display());
    for wrong in [
        text("other-1.sock"),
        text("run/file-2.sock"),
        text("run/link-3.sock"),
        text("run/none-5.sock"),
        text("run/../other-1.sock"),
        text("run/../run/gw-7.sock"),
        text("run/./gw-7.sock"),
        text("run//gw-7.sock"),
        text("run/gw-7.sock/"),
        text("run/gw-7.sock\0"),
        text("link/gw-7.sock"),
        text("run"),
        "run/gw-7.sock".to_owned(),
        "/proc/self/mem".to_owned(),
        "/".to_owned(),
        String::new(),
    ] {
        let (response, prepared) = respond(&scene.operations(), &json!({ "do": "connect", "path": wrong }));
        let error = response["error"].as_str().expect("an error");
        assert!(error.contains(" is not the socket of an instance: "), "{wrong:?}: {error}");
        assert!(prepared.connection.is_none() && prepared.refusal.is_some_and(|why| why == error), "{wrong:?}");
    }
}

/// A folder's owner may replace the file between the list and the connection. These are the replacements.
#[test]
fn links_are_not_followed_when_the_socket_is_opened() {
    let scene = Scene::new();
    let run = scene.at("run");
    let _outside = UnixListener::bind(scene.at("other-1.sock")).expect("a socket");
    std::fs::write(scene.at("run/file-2.sock"), "").expect("a writable folder");
    symlink(scene.at("other-1.sock"), scene.at("run/link-3.sock")).expect("a writable folder");
    symlink(&scene.root, scene.at("run/elsewhere")).expect("a writable folder");
    symlink(&run, scene.at("link")).expect("a writable folder");
    assert!(open_socket(&run, &run.join("gw-7.sock")).is_ok());
    for name in ["file-2.sock", "link-3.sock", "none.sock", "elsewhere/other-1.sock", "../other-1.sock", "named", ""] {
        assert!(open_socket(&run, &run.join(name)).is_err(), "{name}");
    }
    assert!(open_socket(&scene.at("link"), &scene.at("link/gw-7.sock")).is_err(), "the folder is a link");
    assert!(open_socket(&scene.at("run/named"), &run.join("gw-7.sock")).is_err(), "outside the folder");
}

#[test]
fn an_instance_that_has_ended_is_a_failure_and_no_refusal() {
    let Scene { _folder, root, listener } = Scene::new();
    drop(listener);
    let run = root.join("run");
    let operations = Operations::new(std::slice::from_ref(&run), &|_| {});
    let (response, prepared) = respond(&operations, &json!({ "do": "connect", "path": run.join("gw-7.sock") }));
    let error = response["error"].as_str().expect("nothing listens");
    assert!(error.starts_with("cannot connect to the instance at "), "{error}");
    assert!(prepared.connection.is_none() && prepared.refusal.is_none());
}

#[test]
fn a_long_list_is_returned_in_parts() {
    let socket = |number: u32| ListedSocket {
        name: "n".repeat(40),
        pid: Some(number),
        path: PathBuf::from(format!("/tmp/{}/{number:04}\n.sock", "p".repeat(60))),
    };
    let all: Vec<_> = (0..1_000).map(socket).collect();
    let (mut received, mut parts) = (Vec::new(), 0);
    loop {
        let page = page_of(all[received.len()..].iter().cloned());
        let length = encode(page.clone()).expect("UTF-8").len();
        assert!(length <= LONGEST, "{length}");
        let (is_last, count) = (!page.more, page.sockets.len());
        assert!(is_last || length > LONGEST - 512, "{length}: a part is full");
        assert!(count > 0);
        received.extend(page.sockets);
        parts += 1;
        if is_last {
            break;
        }
    }
    assert_eq!((received, parts > 1), (all, true));
    assert_eq!(page_of(std::iter::empty()), SocketPage { sockets: vec![], more: false });
    let long = ListedSocket { name: "n".repeat(LONGEST), ..socket(0) };
    let page = page_of([long.clone(), socket(1)].into_iter());
    assert_eq!((page.sockets, page.more), (vec![long], true), "a part is never empty");
}

#[test]
fn parts_begin_after_the_last_path() {
    let scene = Scene::new();
    let _second = UnixListener::bind(scene.at("run/gw-8.sock")).expect("a socket");
    let operations = scene.operations();
    let own = |after: Option<&Path>| {
        let sockets = operations.page(after).sockets.into_iter().map(|it| it.path);
        sockets.filter(|path| path.starts_with(&scene.root)).collect::<Vec<_>>()
    };
    let [first, second] = [scene.at("run/gw-7.sock"), scene.at("run/gw-8.sock")];
    assert_eq!(own(None), [first.clone(), second.clone()]);
    assert_eq!(own(Some(first.as_path())), std::slice::from_ref(&second));
    assert_eq!(own(Some(second.as_path())), Vec::<PathBuf>::new());
}

#[test]
fn errors_are_one_short_line() {
    let scene = Scene::new();
    let name = format!("a\nroot helper: all is well\x1b[2J{}", "x".repeat(10_000));
    for request in [json!({ "do": name }), json!({ "do": "identity", (name.as_str()): 1 })] {
        let why = respond(&scene.operations(), &request).1.refusal.expect("a wrong request");
        assert!(why.chars().count() <= MOST_SHOWN && !why.contains(char::is_control), "{why:?}");
    }
}
