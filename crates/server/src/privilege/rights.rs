//! The rights of a thread: its users, capabilities and `no_new_privs` (proc(5), `/proc/PID/status`).

use super::PrivilegeError;

/// The sets of capabilities that must be empty. The bounding set (`CapBnd`) gives no rights with `no_new_privs`.
const SETS: [&str; 4] = ["CapInh", "CapPrm", "CapEff", "CapAmb"];

/// The rights of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    /// The real, effective, saved and file-system user.
    users: [u32; 4],
    /// The sets of capabilities, in the order of [`SETS`].
    capabilities: [u64; 4],
    /// Whether programs that the thread starts get no rights from their files.
    no_new_privs: bool,
}

impl Rights {
    /// Parses the text of a status file. A missing or invalid line is an error, and is never taken as a missing right.
    pub(super) fn parse(text: &str) -> Result<Self, PrivilegeError> {
        let users: Vec<u32> = numbers(text, "Uid", 10)?;
        let users: [u32; 4] = users.try_into().map_err(|_| invalid("Uid"))?;
        let mut capabilities = [0_u64; 4];
        for (set, value) in SETS.iter().zip(&mut capabilities) {
            let [only] = numbers::<u64>(text, set, 16)?[..] else {
                return Err(invalid(set));
            };
            *value = only;
        }
        match line(text, "NoNewPrivs")? {
            "0" => Ok(Self { users, capabilities, no_new_privs: false }),
            "1" => Ok(Self { users, capabilities, no_new_privs: true }),
            _ => Err(invalid("NoNewPrivs")),
        }
    }

    /// Checks that the thread has no rights.
    ///
    /// # Errors
    /// Returns the first right, and the action that removes it.
    pub(super) fn check(&self) -> Result<(), PrivilegeError> {
        // Root owns nearly all files, so root has rights also without capabilities.
        if self.users.contains(&0) {
            let [real, effective, saved, file_system] = self.users;
            return Err(PrivilegeError::Right {
                right: format!("user number 0 (Uid: {real} {effective} {saved} {file_system})"),
                advice: "let the root helper start it as another user, or start `forebay serve` as another user",
            });
        }
        for (set, value) in SETS.iter().zip(self.capabilities) {
            if value != 0 {
                return Err(PrivilegeError::Right {
                    right: format!("capabilities ({set}: {value:016x})"),
                    advice: "remove them from the service or container that starts `forebay serve`",
                });
            }
        }
        if !self.no_new_privs {
            return Err(PrivilegeError::Right {
                right: "the possibility to get rights from programs (NoNewPrivs: 0)".to_owned(),
                advice: "use a kernel and container with no_new_privs",
            });
        }
        Ok(())
    }
}

/// Creates the error for a line.
fn invalid(name: &str) -> PrivilegeError {
    PrivilegeError::Unknown(format!("has no valid line {name}"))
}

/// Returns the text after `NAME:` in the line with this name.
fn line<'t>(text: &'t str, name: &str) -> Result<&'t str, PrivilegeError> {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.map(str::trim).ok_or_else(|| invalid(name))
}

/// Returns the numbers in the line with this name. `radix` is 10 or 16.
fn numbers<T: TryFrom<u64>>(text: &str, name: &str, radix: u32) -> Result<Vec<T>, PrivilegeError> {
    let number = |text: &str| {
        // The standard library would accept a sign.
        let is_number = text.chars().all(|digit| digit.is_digit(radix));
        u64::from_str_radix(text, radix).ok().filter(|_| is_number).and_then(|number| T::try_from(number).ok())
    };
    line(text, name)?.split_ascii_whitespace().map(|text| number(text).ok_or_else(|| invalid(name))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a status file with these values.
    fn status(uid: &str, sets: [&str; 4], no_new_privs: &str) -> String {
        let [inheritable, permitted, effective, ambient] = sets;
        format!(
            "Name:\tUid:\nUid:\t{uid}\nGid:\t0\t0\t0\t0\nCapInh:\t{inheritable}\nCapPrm:\t{permitted}\n\
             CapEff:\t{effective}\nCapBnd:\t000001ffffffffff\nCapAmb:\t{ambient}\nNoNewPrivs:\t{no_new_privs}\n"
        )
    }

    const USER: &str = "65534\t65534\t65534\t65534";
    const NONE: [&str; 4] = ["0000000000000000"; 4];

    fn check(text: &str) -> Result<(), String> {
        Rights::parse(text).and_then(|rights| rights.check()).map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_thread_without_any_right_passes() {
        assert_eq!(check(&status(USER, NONE, "1")), Ok(()));
        for at in 0..4 {
            let mut users = ["7"; 4];
            users[at] = "0";
            let error = check(&status(&users.join("\t"), NONE, "1")).expect_err("root");
            let start = format!("this process would serve HTTP with user number 0 (Uid: {}): ", users.join(" "));
            assert!(error.starts_with(&start), "{error}");
            let mut sets = NONE;
            sets[at] = "0000000000000400";
            let error = check(&status(USER, sets, "1")).expect_err("a capability");
            let start = format!("this process would serve HTTP with capabilities ({}: {}): ", SETS[at], sets[at]);
            assert!(error.starts_with(&start), "{error}");
        }
        let error = check(&status(USER, NONE, "0")).expect_err("new rights");
        assert!(error.contains("(NoNewPrivs: 0)"), "{error}");
    }

    #[test]
    fn invalid_files_are_errors() {
        let whole = status(USER, NONE, "1");
        for name in ["Uid", "CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs"] {
            let lines: Vec<_> = whole.lines().filter(|line| !line.starts_with(&format!("{name}:"))).collect();
            let error = check(&lines.join("\n")).expect_err("a line is missing");
            assert!(error.contains(&format!("has no valid line {name}:")), "{error}");
        }
        for uid in ["7", "7 7 7", "7 7 7 7 7", "7 7 7 -7", "7 7 7 +7", "7 7 7 x", "7 7 7 4294967296", ""] {
            assert!(check(&status(uid, NONE, "1")).is_err(), "{uid}");
        }
        for set in ["", "x", "-0", "+0", "0 0", "00000000000000000000000000000000001ffffffffffffffff"] {
            assert!(check(&status(USER, [set, "0", "0", "0"], "1")).is_err(), "{set}");
        }
        for flag in ["", "2", "yes", "1 1"] {
            assert!(check(&status(USER, NONE, flag)).is_err(), "{flag}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "((Uid|CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs):[ 0-9a-f+x]{0,9}\n){0,8}",
        ) {
            let _ = check(&text);
        }

        #[test]
        fn a_check_passes_exactly_without_rights(
            users in prop::array::uniform4(0..3_u32),
            sets in prop::array::uniform4(prop::sample::select(vec![0, 0, 0, 1_u64 << 12, u64::MAX])),
            no_new_privs in any::<bool>(),
        ) {
            let digits = sets.map(|set| format!("{set:016x}"));
            let [inheritable, permitted, effective, ambient] = &digits;
            let uid = users.map(|user| user.to_string()).join("\t");
            let text = status(&uid, [inheritable, permitted, effective, ambient], if no_new_privs { "1" } else { "0" });
            let is_allowed = !users.contains(&0) && sets == [0; 4] && no_new_privs;
            prop_assert_eq!(check(&text).is_ok(), is_allowed, "{}", text);
        }
    }
}
