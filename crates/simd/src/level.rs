//! The instruction-set level a kernel runs at: found out once, then carried as a value that proves the machine has it.

/// What the vector kernels may use. Only [`Level::detect`] and [`Level::available`] make values, so holding one
/// above [`Level::SCALAR`] proves that this machine executes it; the kernels' soundness rests on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub(crate) Isa);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Plain Rust: every machine has it.
    pub const SCALAR: Level = Level(Isa::Scalar);

    /// The highest level this machine offers.
    pub fn detect() -> Level {
        Level::available().last().copied().unwrap_or(Level::SCALAR)
    }

    /// Every level this machine offers, lowest first; tests run a kernel at each.
    pub fn available() -> Vec<Level> {
        #[allow(unused_mut)]
        let mut levels = vec![Level::SCALAR];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            levels.push(Level(Isa::Avx2));
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                levels.push(Level(Isa::Avx512));
            }
        }
        levels
    }

    /// The level's name, for reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
        }
    }
}
