//! The choice between hardware and software encryption.

use std::fmt;

/// The implementation of encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The processor's instructions for AES and for carry-less multiplication.
    Hardware,
    /// A bit-sliced AES without the processor's instructions for AES. The hash uses carry-less multiplication if the
    /// processor has it. There are no look-up tables, and the duration does not depend on secrets.
    Software,
    /// [`Hardware`](Self::Hardware) if the processor has the instructions, otherwise [`Software`](Self::Software).
    #[default]
    Auto,
}

/// The error for a processor without the requested instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the processor has no instructions for AES and carry-less multiplication: allowed are software and auto")]
pub struct NoHardware;

impl Backend {
    /// Returns true if the processor has the instructions.
    #[must_use]
    pub fn has_hardware() -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            // `ring` also needs the byte shuffles, which every processor with AES-NI has.
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

    /// Replaces [`Auto`](Self::Auto) by the best implementation that the processor supports. The result is never
    /// `Auto`.
    ///
    /// # Errors
    /// Returns [`NoHardware`] if hardware is requested and the processor has no such instructions.
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
