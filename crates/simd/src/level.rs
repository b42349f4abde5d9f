//! The instruction-set level of a kernel. It is detected once, and then passed as a value. The value proves that the
//! machine has these instructions.

/// The instructions that the vector kernels may use. Only [`Level::detect`] and [`Level::available`] create values, so
/// a value above [`Level::SCALAR`] proves that this machine executes these instructions. The soundness of the kernels
/// depends on this, so no other code may create values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub(crate) Isa);

/// The instruction sets, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    Scalar,
    /// AVX2 and POPCNT.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F and BW, in addition to the previous instructions.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Plain Rust, which every machine executes.
    pub const SCALAR: Level = Level(Isa::Scalar);

    /// Returns the highest level of this machine.
    pub fn detect() -> Level {
        Level::available().last().copied().unwrap_or(Level::SCALAR)
    }

    /// Returns every level of this machine, lowest first. Tests run a kernel at each level.
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

    /// Returns the level's name, for reports.
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
