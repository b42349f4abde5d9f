//! Which implementation encrypts.

use std::fmt;

/// Which implementation encrypts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The processor's instructions for AES and for multiplication without carries.
    Hardware,
    /// No such instructions, and no look-up tables either: the time taken depends on no secret.
    Software,
    /// [`Hardware`](Self::Hardware) where the processor has the instructions, else [`Software`](Self::Software).
    #[default]
    Auto,
}

/// The processor cannot do what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the processor has no instructions for AES and carry-less multiplication: allowed are software and auto")]
pub struct NoHardware;

impl Backend {
    /// Whether the processor has the instructions.
    #[must_use]
    pub fn has_hardware() -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            // `ring` needs the byte shuffles besides, as every processor with AES-NI has.
            let aes = std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("ssse3");
            aes && std::arch::is_x86_feature_detected!("pclmulqdq")
        }
        #[cfg(target_arch = "aarch64")]
        {
            std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            false
        }
    }

    /// Either of the other two, by what the processor has.
    ///
    /// # Errors
    /// Hardware is asked for and not there.
    pub fn resolve(self) -> Result<Self, NoHardware> {
        match (self, Self::has_hardware()) {
            (Self::Software, _) | (Self::Auto, false) => Ok(Self::Software),
            (Self::Hardware | Self::Auto, true) => Ok(Self::Hardware),
            (Self::Hardware, false) => Err(NoHardware),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hardware => "hardware",
            Self::Software => "software",
            Self::Auto => "auto",
        })
    }
}
