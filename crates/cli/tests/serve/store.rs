//! The store: what it keeps when the server is killed or the disk is full, and files that the server must refuse.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::http::{connect, request};
use crate::lives::crash;
use crate::server::{NO_RIGHTS, Pipeline, Server, Tokens, folder, give, is_root, wait_for};

/// The path of the changes of a table.
const CHANGES: &str = "/api/v1/instances/edge/tables/route/routes/changes";
/// The size of a page of the database.
const PAGE: usize = 8_192;

/// Makes a folder for a store, and returns the path of the store.
fn make_place(folder: &Path) -> PathBuf {
    let own = folder.join("store");
    fs::create_dir(&own).expect("a writable folder");
    give(&own);
    own.join("serve.db")
}

/// Returns settings with this store, without a limit of requests.
fn settings(store: &Path) -> String {
    format!("store: '{}'\nlimits: {{ requests_per_second: 1000000 }}", store.display())
}

/// Returns the change with this number.
fn change(number: u32) -> String {
    let [_, high, middle, low] = number.to_be_bytes();
    format!("add 10.{high}.{middle}.{low}/32 1")
}

/// Returns the bytes of a request that makes a change.
fn change_request(token: &str, number: u32) -> String {
    let bearer = format!("Bearer {token}");
    request("POST", CHANGES, &[("Authorization", &bearer), ("Content-Type", "text/plain")], &change(number))
}

/// Sends a request, and reads the response. Returns its status; `None` if the server has ended before.
fn attempt(stream: &mut BufReader<TcpStream>, bytes: &str) -> Option<u16> {
    stream.get_mut().write_all(bytes.as_bytes()).ok()?;
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    loop {
        line.clear();
        stream.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    Some(status)
}

/// Makes changes from the number `next` on, until the server is gone. Returns the numbers of those that it confirmed,
/// and the first number that was not sent.
fn write_until_killed(mut stream: BufReader<TcpStream>, token: &str, mut next: u32) -> (Vec<u32>, u32) {
    let mut confirmed = Vec::new();
    loop {
        let number = next;
        next += 1;
        match attempt(&mut stream, &change_request(token, number)) {
            Some(status) => assert_eq!(status, 200, "change {number}"),
            None => return (confirmed, next),
        }
        confirmed.push(number);
    }
}

/// The audit log, as it was read until now.
#[derive(Default)]
struct Log {
    /// The number of the newest record.
    last: i64,
    /// The status of each write, by its request; `None` if it has no end.
    writes: BTreeMap<String, Option<u64>>,
}

impl Log {
    /// Reads the records that are new, and checks that none is missing or repeated.
    fn read(&mut self, server: &Server, token: &str) {
        let (mut new, mut before): (Vec<Value>, _) = (Vec::new(), i64::MAX);
        loop {
            let response = server.get_as(token, &format!("/api/v1/audit?most=1000&before={before}"));
            assert_eq!(response.status, 200, "{}", response.body);
            let records = response.json()["records"].as_array().expect("a list").clone();
            let id = |record: &Value| record["id"].as_i64().expect("a number");
            let Some(oldest) = records.last().map(id) else { break };
            new.extend(records.into_iter().filter(|record| id(record) > self.last));
            before = oldest;
            if oldest <= self.last + 1 {
                break;
            }
        }
        for record in new.iter().rev() {
            self.last += 1;
            assert_eq!(record["id"], self.last, "no number is missing or repeated");
            let write = record["request"].as_str().expect("a change").to_owned();
            let earlier = self.writes.insert(write, record["ended"]["status"].as_u64());
            assert!(earlier.is_none(), "recorded twice: {record}");
        }
    }
}

/// Returns the result of SQLite's check of a copy of the database; `None` if there is no Python with SQLite.
fn integrity(store: &Path) -> Option<String> {
    let copies = tempfile::tempdir().expect("a writable folder for temporary files");
    for suffix in ["", "-wal"] {
        let from = PathBuf::from(format!("{}{suffix}", store.display()));
        if from.exists() {
            fs::copy(&from, copies.path().join(format!("copy{suffix}"))).expect("a readable file");
        }
    }
    let script = "
try:
    import sqlite3, sys
except ImportError:
    sys.exit(9)
print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone()[0])";
    let done = Command::new("python3").args(["-c", script]).arg(copies.path().join("copy")).output().ok()?;
    if done.status.code() == Some(9) {
        return None;
    }
    assert!(done.status.success(), "{done:?}");
    Some(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// The history of the pipeline: the times of its rows.
fn history(server: &Server) -> Vec<Value> {
    let response = server.get("/api/v1/instances/edge/history");
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()["at"].as_array().expect("a column").clone()
}

/// Returns a number of milliseconds below 250 that follows no pattern (xorshift).
fn random(state: &mut u64) -> Duration {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    Duration::from_millis(*state % 250)
}

/// `FOREBAY_STORE_KILLS` is the number of kills.
#[test]
fn the_store_survives_kills_of_the_server_at_any_instant() {
    let kills: u32 = std::env::var("FOREBAY_STORE_KILLS").map_or(15, |text| text.parse().expect("a number of kills"));
    let folder = folder();
    let (tokens, store) = (Tokens::make(folder.path()), make_place(folder.path()));
    let settings = format!("{}\n{}", settings(&store), tokens.setting());
    let pipeline = Pipeline::start(folder.path(), "edge");
    let server = Server::with(folder.path(), &settings, &[]);
    server.wait_for("edge", "running");
    wait_for("the first row of the history", || !history(&server).is_empty());
    let rows = history(&server);
    crash(server);
    let (mut log, mut confirmed, mut next, mut state) = (Log::default(), Vec::new(), 0, 0x5eed_u64);
    for kill in 0..=kills {
        match integrity(&store) {
            Some(result) => assert_eq!(result, "ok", "kill {kill}"),
            None if kill == 0 => crate::print("skipped: the check of databases: no python3 with the module sqlite3"),
            None => {}
        }
        let server = Server::with(folder.path(), &settings, &[]);
        server.wait_for("edge", "running");
        assert!(history(&server).starts_with(&rows), "kill {kill}: the history stays");
        log.read(&server, &tokens.admin);
        for number in confirmed.drain(..) {
            let status = log.writes.get(&change(number));
            assert_eq!(status, Some(&Some(200)), "kill {kill}: change {number} was confirmed");
        }
        if kill == kills {
            assert_eq!(server.end(), Some(0));
            break;
        }
        let (stream, token) = (BufReader::new(connect(&server.address)), tokens.operator.clone());
        let writer = std::thread::spawn(move || write_until_killed(stream, &token, next));
        // The kill comes at any instant of the writes.
        std::thread::sleep(random(&mut state));
        crash(server);
        (confirmed, next) = writer.join().expect("all responses had the status 200");
    }
    let with_end = log.writes.values().filter(|status| status.is_some()).count();
    assert!(with_end > 0, "the server was killed before it made a change, each time");
    pipeline.end();
}

/// Starts a server with a store that it must refuse. Returns its standard error.
fn refused(folder: &Path, store: &Path) -> String {
    let refused = Server::try_with(folder, &settings(store), &[]).err().expect("the store must be refused");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    // The error names the file and the remedy, and is one line.
    assert!(refused.err.contains(&store.display().to_string()), "{refused:?}");
    assert!(refused.err.contains("`store`"), "it does not say what to do: {refused:?}");
    assert_eq!(refused.err.trim_end().lines().count(), 1, "{refused:?}");
    refused.err
}

/// Returns the bytes of a new store.
fn new_store(folder: &Path, store: &Path) -> Vec<u8> {
    assert_eq!(Server::with(folder, &settings(store), &[]).end(), Some(0));
    let bytes = fs::read(store).expect("the store");
    assert!(bytes.len() > 4 * PAGE && bytes.starts_with(b"SQLite format 3\0"));
    bytes
}

/// Returns bytes that follow no pattern.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x5eed_u64;
    (0..length).map(|_| random(&mut state).as_millis() as u8).collect()
}

#[test]
fn a_damaged_store_is_refused_and_stays_as_it_is() {
    let folder = folder();
    let store = make_place(folder.path());
    let good = new_store(folder.path(), &store);
    // The offsets of `user_version` and `application_id` (SQLite's file format, section 1.3).
    let with = |at: usize, bytes: &[u8]| [&good[..at], bytes, &good[at + bytes.len()..]].concat();
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("noise", noise(40_000), "is not an SQLite database"),
        ("a text", b"tokens: []\n".to_vec(), "is not an SQLite database"),
        ("half of it", good[..good.len() / 2].to_vec(), "malformed"),
        ("its first page", good[..PAGE].to_vec(), "malformed"),
        ("noise in place of the schema", with(100, &noise(PAGE - 100)), "malformed"),
        ("noise in place of the tables", with(PAGE, &noise(good.len() - PAGE)), "malformed"),
        ("a database of another program", with(68, &[0, 0, 0, 7]), "is a database of another program"),
        ("a newer store", with(60, &[0, 0, 0, 99]), "has version 99"),
    ];
    for (what, bytes, why) in cases {
        for name in ["serve.db-wal", "serve.db-shm"] {
            let _ = fs::remove_file(store.with_file_name(name));
        }
        fs::write(&store, &bytes).expect("own file");
        let err = refused(folder.path(), &store);
        assert!(err.contains(why), "{what}: {err}");
        assert!(fs::read(&store).expect("the file stays") == bytes, "{what}: the file was changed");
    }
    fs::write(&store, &good).expect("own file");
    assert_eq!(Server::with(folder.path(), &settings(&store), &[]).end(), Some(0), "a good store is accepted");
}

#[test]
fn a_store_that_cannot_be_written_is_refused() {
    let folder = folder();
    let store = make_place(folder.path());
    new_store(folder.path(), &store);
    let own = store.parent().expect("a folder");
    // As root, the folder then belongs to root, and the server to another user.
    if is_root() {
        std::os::unix::fs::chown(own, Some(0), Some(0)).expect("root may");
    }
    fs::set_permissions(own, fs::Permissions::from_mode(0o555)).expect("own folder");
    refused(folder.path(), &store);
    refused(folder.path(), &store.with_file_name("new.db"));
    assert!(!store.with_file_name("new.db").exists());
    // The folder can be removed again.
    fs::set_permissions(own, fs::Permissions::from_mode(0o755)).expect("own folder");
}

#[test]
fn a_store_in_use_is_refused() {
    let folder = folder();
    let store = make_place(folder.path());
    let server = Server::with(folder.path(), &settings(&store), &[]);
    let err = refused(folder.path(), &store);
    let expected = format!(
        "the store {} is in use by another server: stop it, or name another file with `store`",
        store.display()
    );
    assert!(err.contains(&expected), "{err}");
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(server.end(), Some(0));
}

/// A small file system. It is removed when this value is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Makes a file system of one megabyte; `None` if this user may not.
    fn make(folder: &Path) -> Option<Self> {
        let path = folder.join("disk");
        fs::create_dir(&path).expect("a writable folder");
        let options = format!("size=1m,mode=0755,uid={NO_RIGHTS},gid={NO_RIGHTS}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).output();
        let is_mounted = is_root() && mount.is_ok_and(|mount| mount.status.success());
        is_mounted.then_some(Self(path))
    }

    /// Writes a file that takes the rest of the space. Returns its path.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("rest");
        let mut file = File::create(&path).expect("a new file");
        while file.write_all(&[0; 4_096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_changes_and_not_reads() {
    let folder = folder();
    let Some(disk) = SmallDisk::make(folder.path()) else {
        return crate::print("skipped: a_full_disk_stops_changes_and_not_reads: this user may not mount a tmpfs");
    };
    let tokens = Tokens::make(folder.path());
    let pipeline = Pipeline::start(folder.path(), "edge");
    let settings = format!("{}\n{}", settings(&disk.0.join("serve.db")), tokens.setting());
    let server = Server::with(folder.path(), &settings, &[]);
    server.wait_for("edge", "running");
    let send = |number| {
        let bytes = change_request(&tokens.operator, number);
        attempt(&mut BufReader::new(connect(&server.address)), &bytes).expect("a response")
    };
    assert_eq!(send(0), 200);
    let alarms = || server.get("/api/v1/alarms").json()["alarms"].as_array().expect("a list").clone();
    assert!(alarms().is_empty(), "{:?}", alarms());
    let rest = disk.fill();
    // The database may have some space left in its files.
    let refused = (1..10_000).find(|number| send(*number) != 200).expect("the disk is full");
    assert_eq!(send(refused), 503);
    let raised = alarms();
    assert!(raised.len() == 1 && raised[0]["alarm"] == "store_failed", "{raised:?}");
    assert!(raised[0]["instance"].is_null() && raised[0]["cause"].as_str().is_some_and(|cause| cause.contains("full")));
    for path in ["/api/v1/audit", "/api/v1/instances/edge/history", "/api/v1/instances/edge/tables", "/metrics"] {
        assert_eq!(server.get_as(&tokens.admin, path).status, 200, "{path}");
    }
    let entries = server.get_as(&tokens.admin, "/api/v1/instances/edge/tables/route/routes?most=10000").json();
    let added = change(refused).trim_start_matches("add ").to_owned();
    assert!(
        !entries["entries"].as_array().expect("a list").contains(&Value::from(added)),
        "it was not made: {entries}"
    );
    fs::remove_file(rest).expect("own file");
    assert_eq!(send(refused), 200);
    assert!(alarms().is_empty(), "{:?}", alarms());
    let mut log = Log::default();
    log.read(&server, &tokens.admin);
    assert_eq!(log.writes.len() as u32, refused + 1, "refused changes are not in the log");
    assert!(log.writes.values().all(|status| *status == Some(200)));
    assert_eq!(server.end(), Some(0));
    pipeline.end();
}

#[test]
fn a_server_does_not_start_on_a_full_disk() {
    let folder = folder();
    let Some(disk) = SmallDisk::make(folder.path()) else {
        return crate::print("skipped: a_server_does_not_start_on_a_full_disk: this user may not mount a tmpfs");
    };
    disk.fill();
    let err = refused(folder.path(), &disk.0.join("serve.db"));
    assert!(err.contains("full"), "{err}");
}
