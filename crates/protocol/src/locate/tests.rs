use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn sockets_of_processes_that_are_gone_are_taken_away() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = |name: &str| folder.path().join(name);
    let own = format!("a-b-{}.sock", std::process::id());
    // No process has this ID: the largest is 2^22.
    for name in [own.as_str(), "gw-4294967295.sock", "gw-x.sock", "notes"] {
        fs::write(file(name), "").expect("a writable folder");
    }
    sweep(folder.path());
    let present = [own.as_str(), "gw-4294967295.sock", "gw-x.sock", "notes"].map(|name| file(name).exists());
    assert_eq!(present, [true, false, true, true]);
}

#[test]
fn several_are_listed_as_options() {
    let text = LocateError::Several(vec!["edge".to_owned(), "gw-7".to_owned()]).to_string();
    assert_eq!(text, "several pipelines are running: name one\n  --instance edge\n  --instance gw-7");
    let text = LocateError::Unknown {
        name: "edg".to_owned(),
        running: vec!["edge".to_owned()],
        hint: " (did you mean 'edge'?)".to_owned(),
    }
    .to_string();
    assert_eq!(text, "no running pipeline is called 'edg' (did you mean 'edge'?): running are edge");
}

#[test]
fn sockets_are_listed_without_a_connection() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let named = folder.path().join("named");
    fs::create_dir(&named).expect("a writable folder");
    let bind = |path: PathBuf| (UnixListener::bind(&path).expect("a socket"), path);
    let (edge, first) = bind(named.join("edge.sock"));
    let (killed, second) = bind(folder.path().join("gw-8.sock"));
    drop(killed);
    fs::write(folder.path().join("file-9.sock"), "").expect("a writable folder");
    let folders = [folder.path().to_owned(), folder.path().join("missing"), folder.path().to_owned()];
    let located = |name: &str, pid, path: &PathBuf| Located { name: name.to_owned(), pid, path: path.clone() };
    assert_eq!(sockets_in(&folders), [located("edge", None, &first), located("gw", Some(8), &second)]);
    assert!(sockets_in(&[]).is_empty());
    edge.set_nonblocking(true).expect("a socket");
    assert_eq!(edge.accept().expect_err("no connection").kind(), io::ErrorKind::WouldBlock);
}

/// Regression: if the socket of a stopped process had no room, every command that looks for runs waited for it.
#[test]
fn a_run_without_room_for_a_connection_is_listed_and_reported_busy() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let path = folder.path().join("gw-4294967295.sock");
    let _full = connect::tests::busy(&path);
    assert_eq!(look(folder.path()).handles(), ["gw"]);
    sweep(folder.path());
    assert!(path.exists(), "the socket has a listener");
    let error = crate::Client::connect(&path).err().expect("no room").to_string();
    assert!(error.contains("the pipeline accepts no connection, and its queue is full"), "{error}");
}

#[test]
fn a_run_is_found_by_its_name_and_killed_runs_are_listed_separately() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let named = folder.path().join("named");
    fs::create_dir(&named).expect("a writable folder");
    let bind = |path: PathBuf| (UnixListener::bind(&path).expect("a socket"), path);
    let at = |name: &str| bind(folder.path().join(name));
    let (_gw, first) = at("gw-7.sock");
    let (_other, second) = at("gw-8.sock");
    let (_edge, edge) = at("edge-9.sock");
    let (_own, own) = bind(named.join("edge-1.sock"));
    let (killed, dead) = at("old-3.sock");
    drop(killed);
    let look = || look(folder.path());
    assert_eq!(look().dead, [dead]);
    assert_eq!(look().handles(), ["edge", "edge-1", "gw-7", "gw-8"]);
    // A name may end in a number; a process ID alone is not a name.
    for (name, path) in [("edge", &edge), ("edge-9", &edge), ("edge-1", &own), ("gw-7", &first), ("gw-8", &second)] {
        assert_eq!(look().called(name).as_ref(), Ok(path), "{name}");
    }
    let handles = vec!["gw-7".to_owned(), "gw-8".to_owned()];
    assert_eq!(look().called("gw"), Err(LocateError::Ambiguous { name: "gw".to_owned(), handles }));
    assert!(matches!(look().called("g"), Err(LocateError::Unknown { running, .. }) if running.len() == 4));
}

#[test]
fn a_service_has_its_own_folder() {
    let of = |folders: &str| service_folder(OsStr::new(folders), "/run/forebay");
    assert_eq!(of("/run/other:/run/forebay/edge:/run/forebay/b"), Some(PathBuf::from("/run/forebay/edge")));
    for other in ["", "/run/other", "/run/forebay", "/run/forebay/a/b", "/var/run/forebay/edge"] {
        assert_eq!(of(other), None, "{other}");
    }
    assert!(is_of_service(Path::new("/run/forebay/edge/named/edge.sock")));
    assert!(!is_of_service(Path::new("/run/forebay-serve/edge.sock")));
}
