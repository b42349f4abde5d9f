//! The users and groups of the host, from the files `etc/passwd` and `etc/group`.
//!
//! Only these two files are read, because directories of users (LDAP, systemd) need code of the C library. A user of
//! such a directory can be named by number. A line with an unexpected form is skipped and never guessed at.

use std::path::Path;

use crate::tree::{Tree, Unknown};

/// The file with the users (passwd(5)).
const USERS: &str = "/etc/passwd";
/// The file with the groups (group(5)).
const GROUPS: &str = "/etc/group";
/// The largest user or group number. The kernel takes the number above it as "no change" (setreuid(2)).
const LARGEST: u32 = u32::MAX - 1;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, or the number as text if the user has no name.
    pub name: String,
    /// The user number.
    pub uid: u32,
    /// The number of the user's primary group.
    pub gid: u32,
}

/// The reason why a user was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// No user has this name.
    #[error("{file} contains no user {name:?}: name a user of this file, or a user by number (0 to {LARGEST})")]
    NotFound {
        /// The name.
        name: String,
        /// The file with the users.
        file: String,
    },
    /// The number is too large for a user.
    #[error("user number {0} is out of range (0 to {LARGEST})")]
    OutOfRange(String),
    /// The file with the users cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unknown),
}

/// Finds a user by name or number in `etc/passwd` beneath `root`. If several lines match, the first one counts, as for
/// the C library. A number without a line is accepted: the user's group has the same number.
///
/// # Errors
/// Returns [`UserError`] if no user has the name, if the number is out of range, or if the file cannot be read. A
/// missing file is no error for a number.
pub fn find(root: &Path, name_or_number: &str) -> Result<User, UserError> {
    let tree = Tree::at(root);
    let text = tree.listing(USERS);
    if is_number(name_or_number) {
        let uid = number(name_or_number).ok_or_else(|| UserError::OutOfRange(name_or_number.to_owned()))?;
        let text = match text {
            Err(Unknown::Missing(_)) => String::new(),
            text => text.map_err(|why| why.beneath(&tree))?,
        };
        let unnamed = || User { name: uid.to_string(), uid, gid: uid };
        return Ok(users(&text).find(|user| user.uid == uid).unwrap_or_else(unnamed));
    }
    let text = text.map_err(|why| why.beneath(&tree))?;
    users(&text).find(|user| user.name == name_or_number).ok_or_else(|| UserError::NotFound {
        name: name_or_number.to_owned(),
        file: tree.place(USERS).display().to_string(),
    })
}

/// Returns the name of the user with this number. `None` if there is none, or if the file cannot be read.
#[must_use]
pub fn name_of(root: &Path, uid: u32) -> Option<String> {
    let text = Tree::at(root).listing(USERS).ok()?;
    users(&text).find(|user| user.uid == uid).map(|user| user.name)
}

/// Returns the numbers of the groups that list the user as a member, lowest first. The primary group is included only
/// if it lists the user. Empty if the file cannot be read.
#[must_use]
pub fn groups_of(root: &Path, name: &str) -> Vec<u32> {
    let text = Tree::at(root).listing(GROUPS).unwrap_or_default();
    let mut all: Vec<u32> = text.lines().filter_map(|line| group_with(line, name)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the users of the valid lines of `etc/passwd`.
fn users(text: &str) -> impl Iterator<Item = User> + '_ {
    text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _password, uid, gid, _comment, _home, _shell] = fields[..] else {
            return None;
        };
        is_name(name).then_some(())?;
        Some(User { name: name.to_owned(), uid: number(uid)?, gid: number(gid)? })
    })
}

/// Returns the number of the group in a line of `etc/group`, if the user `member` is listed there.
fn group_with(line: &str, member: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split(':').collect();
    let [group, _password, gid, members] = fields[..] else {
        return None;
    };
    (is_name(group) && is_name(member) && members.split(',').any(|one| one == member)).then_some(())?;
    number(gid)
}

/// Returns whether `text` is a name. A text of digits is a number, and lines that begin with `+` or `-` are
/// instructions for directories of users (nsswitch.conf(5)).
fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| !letter.is_control() && !letter.is_whitespace() && !":,/".contains(letter);
    !text.is_empty() && !text.starts_with(['+', '-']) && !is_number(text) && text.chars().all(is_letter)
}

/// Returns whether `text` consists of digits.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses the number of a user or group. `None` for any other text, or if the number is out of range.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| is_number(text) && *number <= LARGEST)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Makes a root folder with these files.
    fn root(passwd: Option<&[u8]>, group: Option<&[u8]>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("etc")).expect("a folder");
        for (file, text) in [("etc/passwd", passwd), ("etc/group", group)] {
            text.into_iter().for_each(|text| std::fs::write(folder.path().join(file), text).expect("a file"));
        }
        folder
    }

    fn user(name: &str, uid: u32, gid: u32) -> User {
        User { name: name.to_owned(), uid, gid }
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nforebay:!:990:980::/:/bin/false\ntwin:x:990:1::/:\n";
        let folder = root(Some(passwd), None);
        let find = |text: &str| find(folder.path(), text);
        assert_eq!(find("forebay"), Ok(user("forebay", 990, 980)));
        assert_eq!(find("990"), Ok(user("forebay", 990, 980)), "the first line counts");
        assert_eq!(find("twin"), Ok(user("twin", 990, 1)));
        assert_eq!(find("991"), Ok(user("991", 991, 991)));
        assert_eq!(find("4294967294"), Ok(user("4294967294", LARGEST, LARGEST)));
        for large in ["4294967295", "99999999999999999999"] {
            assert_eq!(find(large), Err(UserError::OutOfRange(large.to_owned())));
        }
        let error = find("forbay").expect_err("no such user").to_string();
        let file = folder.path().join("etc/passwd");
        let expected = format!(
            "{} contains no user \"forbay\": name a user of this file, or a user by number (0 to 4294967294)",
            file.display()
        );
        assert_eq!(error, expected);
        assert_eq!(name_of(folder.path(), 990).as_deref(), Some("forebay"));
        assert_eq!(name_of(folder.path(), 991), None);
    }

    #[test]
    fn hostile_lines_are_skipped() {
        let wrong = [
            "",
            ":x:1:1::/:",
            "evil",
            "evil:x:1:1",
            "evil:x:1:1::/:/bin/sh:more",
            "evil:x:-1:1::/:",
            "evil:x:+1:1::/:",
            "evil:x: 1:1::/:",
            "evil:x:0x1:1::/:",
            "evil:x:1:::/:",
            "evil:x:4294967295:1::/:",
            "evil:x:1:4294967295::/:",
            "evil:x:18446744073709551617:1::/:",
            "+evil:x:1:1::/:",
            "-evil:x:1:1::/:",
            "+::::::",
            "123:x:1:1::/:",
            "ev il:x:1:1::/:",
            "../evil:x:1:1::/:",
            "ev\0il:x:1:1::/:",
        ];
        assert_eq!(users(&wrong.join("\n")).collect::<Vec<_>>(), []);
        assert_eq!(users("a.b-c$:x:1:2:,,: :\r\n").collect::<Vec<_>>(), [user("a.b-c$", 1, 2)]);
        for name in ["", "+", "-1", "+1", " 1", "1 ", "root\n", "root:x"] {
            let folder = root(Some(b"root:x:0:0:root:/root:/bin/sh\n"), None);
            assert!(matches!(find(folder.path(), name), Err(UserError::NotFound { .. })), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_reported() {
        let folder = root(None, None);
        assert_eq!(find(folder.path(), "7"), Ok(user("7", 7, 7)));
        assert!(matches!(find(folder.path(), "root"), Err(UserError::Unreadable(Unknown::Missing(_)))));
        assert_eq!((name_of(folder.path(), 0), groups_of(folder.path(), "root")), (None, vec![]));
        let folder = root(Some(b"root:x:0:0:\xff:/root:/bin/sh\n"), None);
        for wanted in ["root", "0"] {
            let error = find(folder.path(), wanted).expect_err("no text").to_string();
            assert!(error.starts_with(&folder.path().display().to_string()), "{error}");
        }
    }

    #[test]
    fn groups_are_those_that_list_the_user() {
        let group = b"root:x:0:\nadm:x:4:syslog,ann\nusers:x:100:ann,ben\nagain:x:100:ann\nodd:x:9:annette\n\
                      wrong:x:-7:ann\nlong:x:8:ann:ann\n";
        let folder = root(None, Some(group));
        assert_eq!(groups_of(folder.path(), "ann"), [4, 100]);
        assert_eq!(groups_of(folder.path(), "ben"), [100]);
        assert_eq!(groups_of(folder.path(), "root"), [0u32; 0]);
        assert_eq!(groups_of(folder.path(), ""), [0u32; 0], "an empty list of members has no member");
    }

    proptest! {
        #[test]
        fn any_file_is_accepted(
            passwd in prop::collection::vec(any::<u8>(), 0..200),
            lines in "[a-z0-9:+,\\-\\n\\PC]{0,120}",
            name in "\\PC{0,8}",
        ) {
            for text in [passwd.as_slice(), lines.as_bytes()] {
                let folder = root(Some(text), Some(text));
                if let Ok(user) = find(folder.path(), &name) {
                    prop_assert!(user.uid <= LARGEST && user.gid <= LARGEST);
                    prop_assert!(user.name == name || is_number(&name));
                }
                let _ = name_of(folder.path(), 0);
                let groups = groups_of(folder.path(), &name);
                prop_assert!(groups.is_sorted() && groups.iter().all(|gid| *gid <= LARGEST));
            }
        }

        #[test]
        fn the_first_valid_line_of_a_name_counts(
            lines in prop::collection::vec(("[a-d]{1,2}", 0..20u32, 0..9u32, any::<bool>()), 0..20),
        ) {
            let mut model = BTreeMap::new();
            let mut text = String::new();
            for (name, uid, gid, is_valid) in lines {
                // A line with a missing field is invalid.
                let rest = if is_valid { ":/:" } else { ":/" };
                text.push_str(&format!("{name}:x:{uid}:{gid}:{rest}\n"));
                if is_valid {
                    model.entry(name.clone()).or_insert_with(|| user(&name, uid, gid));
                }
            }
            let folder = root(Some(text.as_bytes()), None);
            for name in ["a", "b", "ab", "dd"] {
                prop_assert_eq!(find(folder.path(), name).ok(), model.get(name).cloned());
            }
        }
    }
}
