//! Identifies the counted program, because not all builds have counts that can be compared.

use forebay_measure::machine::c_library;
use serde::{Deserialize, Serialize};

/// The counted program, as reported by the counted process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedBuild {
    /// The version of Forebay.
    pub forebay: String,
    /// `release`, or `debug` with its internal checks.
    pub profile: String,
    /// The instruction set for which it was compiled, and the instruction set of the emulated processor.
    pub instruction_set: String,
    /// The C library, if known: most copies are made by it.
    pub c_library: Option<String>,
}

/// The counts of two builds cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the counts of the baseline and of this program cannot be compared: the baseline was counted with '{before}', and \
     this program was counted with '{now}'. Build the program in the same way, or compare two local builds (--against \
     PROGRAM), or count the baseline again (--update)"
)]
pub struct OtherBuild {
    /// The instruction set or build profile of the baseline.
    pub before: String,
    /// The instruction set or build profile of this program.
    pub now: String,
}

impl CountedBuild {
    /// Checks that the counts of this build (the baseline) can be compared with the counts of `now`. Returns a note if
    /// the C libraries differ.
    ///
    /// # Errors
    /// [`OtherBuild`]: the instruction sets differ, or only one of the builds has internal checks.
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
                "the baseline was counted with {}, this program with {}: differences in parts that copy whole frames \
                 may come from the libraries",
                known(&self.c_library),
                known(&now.c_library)
            )
        }))
    }

    /// Returns the build of this process.
    pub(super) fn this() -> Self {
        Self {
            forebay: env!("CARGO_PKG_VERSION").to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            instruction_set: instruction_set(),
            c_library: c_library(),
        }
    }
}

/// Returns the instruction sets that the program was compiled for and that this processor has.
fn instruction_set() -> String {
    let compiled = [
        ("popcnt", cfg!(target_feature = "popcnt")),
        ("avx2", cfg!(target_feature = "avx2")),
        ("bmi2", cfg!(target_feature = "bmi2")),
        ("fma", cfg!(target_feature = "fma")),
        ("movbe", cfg!(target_feature = "movbe")),
        ("avx512f", cfg!(target_feature = "avx512f")),
    ];
    #[cfg(target_arch = "x86_64")]
    let detected = [
        ("popcnt", is_x86_feature_detected!("popcnt")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("movbe", is_x86_feature_detected!("movbe")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let detected = compiled;
    let list = |features: [(&'static str, bool); 6]| {
        let with: Vec<_> = features.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        if with.is_empty() { "nothing more".to_owned() } else { with.join(" ") }
    };
    format!("{}, compiled for {}, run with {}", std::env::consts::ARCH, list(compiled), list(detected))
}
