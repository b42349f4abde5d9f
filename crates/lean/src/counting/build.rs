//! Which program was counted: counts of others may be no measure of its own.

use forebay_measure::machine::c_library;
use serde::{Deserialize, Serialize};

/// The program that was counted, told by itself as it ran under the counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Its version.
    pub forebay: String,
    /// `release`, or `debug` where it checks itself.
    pub profile: String,
    /// The instruction set that it was compiled for, and what it found the counter's processor to have.
    pub instruction_set: String,
    /// The C library that it runs with, where it is known: most copies are its.
    pub c_library: Option<String>,
}

/// Counts that say nothing about each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the baseline is of '{before}', this program of '{now}': their counts are no measure of each other; allowed is the same. Build it like that, or compare two builds of here (--against PROGRAM), or count the baseline anew (--update)"
)]
pub struct OtherBuild {
    /// Of the baseline.
    pub before: String,
    /// Of this program.
    pub now: String,
}

impl Build {
    /// Whether this build's counts can be compared with those of `now`. What is to be said of it besides.
    ///
    /// # Errors
    /// [`OtherBuild`]: another instruction set, or one that checks itself against one that does not.
    pub fn compares(&self, now: &Self) -> Result<Option<String>, OtherBuild> {
        if self.instruction_set != now.instruction_set {
            return Err(OtherBuild { before: self.instruction_set.clone(), now: now.instruction_set.clone() });
        }
        if self.profile != now.profile {
            return Err(OtherBuild {
                before: format!("a {} build", self.profile),
                now: format!("a {} build", now.profile),
            });
        }
        let known = |library: &Option<String>| library.clone().unwrap_or_else(|| "an unknown C library".to_owned());
        Ok((self.c_library != now.c_library).then(|| {
            format!(
                "the baseline was counted with {}, this is {}: where whole frames are copied the difference may be theirs",
                known(&self.c_library),
                known(&now.c_library)
            )
        }))
    }

    pub(super) fn this() -> Self {
        Self {
            forebay: env!("CARGO_PKG_VERSION").to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            instruction_set: instruction_set(),
            c_library: c_library(),
        }
    }
}

/// What instructions there are: those that the program was compiled for, and those that this processor has.
fn instruction_set() -> String {
    let told = [
        ("popcnt", cfg!(target_feature = "popcnt")),
        ("avx2", cfg!(target_feature = "avx2")),
        ("bmi2", cfg!(target_feature = "bmi2")),
        ("fma", cfg!(target_feature = "fma")),
        ("movbe", cfg!(target_feature = "movbe")),
        ("avx512f", cfg!(target_feature = "avx512f")),
    ];
    #[cfg(target_arch = "x86_64")]
    let seen = [
        ("popcnt", is_x86_feature_detected!("popcnt")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("movbe", is_x86_feature_detected!("movbe")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let seen = told;
    let list = |features: [(&'static str, bool); 6]| {
        let with: Vec<_> = features.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        if with.is_empty() { "nothing more".to_owned() } else { with.join(" ") }
    };
    format!("{}, compiled for {}, run with {}", std::env::consts::ARCH, list(told), list(seen))
}
