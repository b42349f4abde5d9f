//! The encoding of samples: postcard, with idle modules and flows left out.
//!
//! An idle module or flow takes one bit, and a busy module about ten bytes. Values with decimals are whole numbers of
//! hundredths plus one, so that small values take few bytes, and 0 stands for a value that does not exist. The figures
//! of modules and of flows are byte strings of their own: a query that does not need them does not decode them.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::sample::{FlowPoint, ModulePoint, Sample, SampleLayout};

/// The reason why bytes are not a sample.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BlobError {
    /// The bytes are not what postcard writes.
    #[error("{0}")]
    Encoding(String),
    /// There are bytes after the end.
    #[error("{0} bytes follow after its end")]
    Rest(usize),
    /// The bits of busy elements do not fit the numbers of elements.
    #[error("its list of busy elements is wrong")]
    Bits,
    /// The sample does not fit its layout.
    #[error("it has {found} elements, and its layout has {expected}")]
    Count {
        /// The number in the sample.
        found: usize,
        /// The number in the layout.
        expected: usize,
    },
}

impl From<postcard::Error> for BlobError {
    fn from(error: postcard::Error) -> Self {
        Self::Encoding(error.to_string())
    }
}

fn to_hundredths(value: Option<f32>) -> u32 {
    match value {
        // The conversion to `u32` makes a negative number 0.
        Some(value) if !value.is_nan() => ((f64::from(value) * 100.0).round() as u32).min(u32::MAX - 1) + 1,
        _ => 0,
    }
}

fn from_hundredths(hundredths: u32) -> Option<f32> {
    hundredths.checked_sub(1).map(|hundredths| (f64::from(hundredths) / 100.0) as f32)
}

/// The figures of a module or flow. The default is an idle one.
pub(super) trait Point: Default + PartialEq {
    /// The figures as they are encoded.
    type Packed: Serialize + DeserializeOwned;

    fn pack(&self) -> Self::Packed;

    fn unpack(packed: Self::Packed) -> Self;
}

impl Point for ModulePoint {
    type Packed = (u64, u64, u64, u32);

    fn pack(&self) -> Self::Packed {
        (self.packets, self.dropped, self.batches, to_hundredths(self.ticks_per_packet))
    }

    fn unpack((packets, dropped, batches, ticks): Self::Packed) -> Self {
        Self { packets, dropped, batches, ticks_per_packet: from_hundredths(ticks) }
    }
}

impl Point for FlowPoint {
    type Packed = (u64, u64, u32, u32, u32);

    fn pack(&self) -> Self::Packed {
        let [p50, p99, chosen] = [self.p50_us, self.p99_us, self.chosen_us].map(to_hundredths);
        (self.packets, self.violations, p50, p99, chosen)
    }

    fn unpack((packets, violations, p50, p99, chosen): Self::Packed) -> Self {
        let [p50_us, p99_us, chosen_us] = [p50, p99, chosen].map(from_hundredths);
        Self { packets, violations, p50_us, p99_us, chosen_us }
    }
}

/// Encodes points: their number, a bit for each busy one, and the busy ones.
fn encode_points<P: Point>(points: &[P]) -> Result<Vec<u8>, BlobError> {
    let mut bits = vec![0u8; points.len().div_ceil(8)];
    let mut busy = Vec::new();
    for (index, point) in points.iter().enumerate().filter(|(_, point)| **point != P::default()) {
        bits[index / 8] |= 1 << (index % 8);
        busy.push(point.pack());
    }
    Ok(postcard::to_allocvec(&(points.len(), bits, busy))?)
}

/// Encoded points before the busy ones are decoded.
struct EncodedPoints<'a> {
    /// The number of points.
    count: usize,
    /// A bit for each busy point.
    bits: &'a [u8],
    /// The busy points.
    busy: &'a [u8],
}

impl<'a> EncodedPoints<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, BlobError> {
        let ((count, bits, number), busy) = postcard::take_from_bytes::<(usize, &'a [u8], usize)>(bytes)?;
        let ones: usize = bits.iter().map(|byte| byte.count_ones() as usize).sum();
        let points = Self { count, bits, busy };
        let is_beyond = (count..bits.len().saturating_mul(8)).any(|index| points.is_busy(index));
        if bits.len() != count.div_ceil(8) || ones != number || is_beyond {
            return Err(BlobError::Bits);
        }
        Ok(points)
    }

    fn is_busy(&self, index: usize) -> bool {
        self.bits.get(index / 8).is_some_and(|byte| (byte >> (index % 8)) & 1 == 1)
    }

    /// Decodes all points.
    fn all<P: Point>(&self) -> Result<Vec<P>, BlobError> {
        let mut rest = self.busy;
        let mut points = Vec::with_capacity(self.count);
        for index in 0..self.count {
            if self.is_busy(index) {
                let (point, after) = take(rest)?;
                points.push(point);
                rest = after;
            } else {
                points.push(P::default());
            }
        }
        if rest.is_empty() { Ok(points) } else { Err(BlobError::Rest(rest.len())) }
    }

    /// Decodes the point at `index`. The points after it are not decoded.
    fn one<P: Point>(&self, index: usize) -> Result<P, BlobError> {
        if !self.is_busy(index) {
            return Ok(P::default());
        }
        let mut rest = self.busy;
        for _ in (0..index).filter(|before| self.is_busy(*before)) {
            rest = take::<P>(rest)?.1;
        }
        Ok(take(rest)?.0)
    }
}

/// Decodes the point at the beginning of the bytes. Returns it and the bytes after it.
fn take<P: Point>(bytes: &[u8]) -> Result<(P, &[u8]), BlobError> {
    let (packed, rest) = postcard::take_from_bytes::<P::Packed>(bytes)?;
    Ok((P::unpack(packed), rest))
}

/// An encoded sample. The figures of modules and flows are decoded on request.
#[derive(Serialize, Deserialize)]
pub(super) struct EncodedSample<'a> {
    interval_ms: u32,
    pub entered: u64,
    pub out: u64,
    pub dropped: u64,
    /// For each worker, its share in ten-thousandths.
    busy: Vec<u16>,
    modules: &'a [u8],
    flows: &'a [u8],
}

impl<'a> EncodedSample<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, BlobError> {
        let (sample, rest) = postcard::take_from_bytes::<Self>(bytes)?;
        if rest.is_empty() { Ok(sample) } else { Err(BlobError::Rest(rest.len())) }
    }

    pub(super) fn interval_s(&self) -> f64 {
        f64::from(self.interval_ms) / 1e3
    }

    pub(super) fn busy(&self) -> impl Iterator<Item = f32> {
        self.busy.iter().map(|share| (f64::from(*share) / 1e4) as f32)
    }

    /// Decodes the module at `index`. `count` is the number of modules in the layout.
    pub(super) fn module(&self, index: usize, count: usize) -> Result<ModulePoint, BlobError> {
        point(self.modules, index, count)
    }

    /// Decodes the flow at `index`. `count` is the number of flows in the layout.
    pub(super) fn flow(&self, index: usize, count: usize) -> Result<FlowPoint, BlobError> {
        point(self.flows, index, count)
    }
}

fn point<P: Point>(bytes: &[u8], index: usize, expected: usize) -> Result<P, BlobError> {
    let points = EncodedPoints::read(bytes)?;
    if points.count == expected { points.one(index) } else { Err(BlobError::Count { found: points.count, expected }) }
}

/// Encodes a sample.
pub(super) fn encode(sample: &Sample) -> Result<Vec<u8>, BlobError> {
    let (modules, flows) = (encode_points(&sample.modules)?, encode_points(&sample.flows)?);
    let encoded = EncodedSample {
        // Conversions to whole numbers keep within their range, and make NaN 0.
        interval_ms: (f64::from(sample.interval_s) * 1e3).round() as u32,
        entered: sample.entered,
        out: sample.out,
        dropped: sample.dropped,
        busy: sample.busy.iter().map(|share| (f64::from(*share) * 1e4).round() as u16).collect(),
        modules: &modules,
        flows: &flows,
    };
    Ok(postcard::to_allocvec(&encoded)?)
}

/// Decodes a sample.
pub(super) fn decode(bytes: &[u8]) -> Result<Sample, BlobError> {
    let encoded = EncodedSample::read(bytes)?;
    Ok(Sample {
        interval_s: encoded.interval_s() as f32,
        modules: EncodedPoints::read(encoded.modules)?.all()?,
        flows: EncodedPoints::read(encoded.flows)?.all()?,
        busy: encoded.busy().collect(),
        entered: encoded.entered,
        out: encoded.out,
        dropped: encoded.dropped,
    })
}

/// Encodes the names of a layout.
pub(super) fn encode_layout(layout: &SampleLayout) -> Result<Vec<u8>, BlobError> {
    Ok(postcard::to_allocvec(layout)?)
}

/// Decodes the names of a layout.
pub(super) fn decode_layout(bytes: &[u8]) -> Result<SampleLayout, BlobError> {
    let (layout, rest) = postcard::take_from_bytes(bytes)?;
    if rest.is_empty() { Ok(layout) } else { Err(BlobError::Rest(rest.len())) }
}

#[cfg(test)]
mod tests;
