//! AES-GCM without the processor's instructions. The implementation of RustCrypto is bit-sliced ("fixsliced", Adomnicai
//! and Peyrin 2020), with constant-time multiplications. It uses no look-up tables, so cache timing reveals nothing
//! about keys.
//!
//! A feature of the crate `aes` forces its software implementation on every processor. The mode is that of the crate
//! `aes-gcm`, whose hash uses carry-less multiplication if the processor has it. Both take the same time for all keys.
//! Expanded keys are not wiped when they are dropped.

use aes::cipher::{BlockEncrypt as Encrypt, NewBlockCipher};
use aes::{Aes128, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInPlace;
use cipher::consts::{U8, U12, U16};
use cipher::inout::InOut;
use cipher::{
    Block, BlockBackend, BlockCipher, BlockClosure, BlockEncrypt, BlockSizeUser, ParBlocks, ParBlocksSizeUser,
};

use crate::{Aead, Forged, NONCE, TAG};

/// The expanded key, by the length of the key.
pub(crate) enum Software {
    Aes128(Box<AesGcm<Sliced<Aes128>, U12>>),
    Aes256(Box<AesGcm<Sliced<Aes256>, U12>>),
}

/// A bit-sliced AES of the crate `aes` 0.7 with the interface of later versions, which `aes-gcm` needs.
pub(crate) struct Sliced<C>(C);

impl<C> BlockSizeUser for Sliced<C> {
    type BlockSize = U16;
}

impl<C> BlockCipher for Sliced<C> {}

impl<C: Encrypt<BlockSize = U16, ParBlocks = U8>> BlockEncrypt for Sliced<C> {
    fn encrypt_with_backend(&self, closure: impl BlockClosure<BlockSize = U16>) {
        closure.call(&mut Slices(&self.0));
    }
}

/// The encryption of blocks, of which eight are encrypted at once.
struct Slices<'c, C>(&'c C);

impl<C> BlockSizeUser for Slices<'_, C> {
    type BlockSize = U16;
}

impl<C> ParBlocksSizeUser for Slices<'_, C> {
    type ParBlocksSize = U8;
}

impl<C: Encrypt<BlockSize = U16, ParBlocks = U8>> BlockBackend for Slices<'_, C> {
    #[inline]
    fn proc_block(&mut self, mut block: InOut<'_, '_, Block<Self>>) {
        let mut copy = block.clone_in();
        self.0.encrypt_block(&mut copy);
        *block.get_out() = copy;
    }

    #[inline]
    fn proc_par_blocks(&mut self, mut blocks: InOut<'_, '_, ParBlocks<Self>>) {
        let mut copy = blocks.clone_in();
        self.0.encrypt_par_blocks(&mut copy);
        *blocks.get_out() = copy;
    }
}

impl Software {
    /// Creates a key of AES-128-GCM or AES-256-GCM. Returns `None` if the length is not 16 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        if let Ok(key) = <&[u8; 16]>::try_from(key) {
            return Some(Self::Aes128(Box::new(Sliced(Aes128::new(key.into())).into())));
        }
        let key = <&[u8; 32]>::try_from(key).ok()?;
        Some(Self::Aes256(Box::new(Sliced(Aes256::new(key.into())).into())))
    }
}

impl Aead for Software {
    fn seal(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8]) -> [u8; TAG] {
        let nonce = nonce.into();
        let tag = match self {
            Self::Aes128(key) => key.encrypt_in_place_detached(nonce, associated, text),
            Self::Aes256(key) => key.encrypt_in_place_detached(nonce, associated, text),
        };
        tag.expect("a text is shorter than 64 GiB (NIST SP 800-38D section 5.2.1.1)").into()
    }

    fn open(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8], tag: &[u8; TAG]) -> Result<(), Forged> {
        let (nonce, tag) = (nonce.into(), tag.into());
        let opened = match self {
            Self::Aes128(key) => key.decrypt_in_place_detached(nonce, associated, text, tag),
            Self::Aes256(key) => key.decrypt_in_place_detached(nonce, associated, text, tag),
        };
        opened.map_err(|_| Forged)
    }
}
