//! Key blocks as they are stored: compressing, decompressing, checksums.

use super::block::{Block, BlockHandle, StoredBlock};
use super::config::Compression;
use super::format::{BLOCK_HEADER_BYTES, EXPANSION_MAX};
use bytes::Bytes;
use glintdb_core::checksum::FileSeed;
use glintdb_core::{Error, ErrorKind, FileId, Result, planted};

/// Seals `stored` (a whole block, its checksum not yet right) for `offset`.
pub(super) fn seal(seed: FileSeed, offset: u64, stored: &mut [u8]) {
    let checksum = seed.checksum(offset, &stored[4..]);
    stored[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// Appends the stored form of `image` to `out` (checksum missing): compressed where that saves a sixteenth and does not expand beyond the limit, else as it is.
pub(super) fn store(image: &[u8], compression: Compression, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(image);
    let body = &image[BLOCK_HEADER_BYTES..];
    if compression == Compression::None {
        return Ok(());
    }
    let compressed = compress(body, compression)?;
    let worth_it = compressed.len() + body.len() / 16 < body.len()
        && image.len() <= (compressed.len() + BLOCK_HEADER_BYTES) * EXPANSION_MAX;
    if worth_it {
        out.truncate(start + BLOCK_HEADER_BYTES);
        out[start + 4] = compression.code();
        out.extend_from_slice(&compressed);
    }
    Ok(())
}

fn compress(body: &[u8], compression: Compression) -> Result<Vec<u8>> {
    match compression {
        Compression::None => Ok(body.to_vec()),
        Compression::Lz4 => Ok(lz4_flex::block::compress(body)),
        #[cfg(feature = "zstd")]
        Compression::Zstd => {
            zstd::bulk::compress(body, 3).map_err(|error| Error::io("compress a block", error))
        }
        #[cfg(not(feature = "zstd"))]
        Compression::Zstd => Err(no_zstd()),
    }
}

#[cfg(not(feature = "zstd"))]
fn no_zstd() -> Error {
    Error::new(
        ErrorKind::UnsupportedFormat,
        "zstd is not part of this build (feature `zstd`)",
    )
}

/// Verifies the stored form of a block and makes the block of it.
pub(super) fn open(
    seed: FileSeed,
    file: FileId,
    handle: BlockHandle,
    stored: Bytes,
) -> Result<StoredBlock> {
    let corrupt = |message: String| Error::corruption(file, handle.offset, message);
    if stored.len() != handle.length as usize {
        return Err(corrupt(format!(
            "key block of {} bytes, of which the file holds {}",
            handle.length,
            stored.len()
        )));
    }
    let Some((found, covered)) = stored.split_first_chunk::<4>() else {
        return Err(corrupt("key block too short".into()));
    };
    let (found, expected) = (
        u32::from_le_bytes(*found),
        seed.checksum(handle.offset, covered),
    );
    if planted!(
        "lsm: a block's checksum is not checked",
        found != expected,
        false
    ) {
        return Err(corrupt(format!(
            "key block checksum {found:#010x}, computed {expected:#010x}"
        )));
    }
    let image = expand(&stored).map_err(|error| match error {
        Expand::Malformed => corrupt("key block does not decompress".into()),
        Expand::Unknown(codec) => Error::new(
            ErrorKind::UnsupportedFormat,
            format!("{file}: key block with codec {codec}, which this build does not know"),
        ),
    })?;
    let image = image.unwrap_or_else(|| stored.clone());
    let block = Block::new(image, handle)
        .map_err(|_| corrupt("key block's arrays do not fit it".into()))?;
    Ok(StoredBlock {
        file,
        stored,
        block,
    })
}

enum Expand {
    Malformed,
    Unknown(u8),
}

/// The decompressed image; `None`: it is stored as it is.
fn expand(stored: &[u8]) -> Result<Option<Bytes>, Expand> {
    let header: &[u8; BLOCK_HEADER_BYTES] = stored.first_chunk().ok_or(Expand::Malformed)?;
    let codec = header[4];
    if codec == 0 {
        return Ok(None);
    }
    let used = u32::from_le_bytes([header[16], header[17], header[18], header[19]]) as usize;
    let compressed = stored.get(BLOCK_HEADER_BYTES..).ok_or(Expand::Malformed)?;
    if used < BLOCK_HEADER_BYTES || used > stored.len().saturating_mul(EXPANSION_MAX) {
        return Err(Expand::Malformed);
    }
    let mut image = vec![0; used];
    image[..BLOCK_HEADER_BYTES].copy_from_slice(header);
    image[4] = 0;
    let body = &mut image[BLOCK_HEADER_BYTES..];
    let length = match codec {
        1 => lz4_flex::block::decompress_into(compressed, body).ok(),
        #[cfg(feature = "zstd")]
        2 => zstd::bulk::decompress_to_buffer(compressed, body).ok(),
        codec => return Err(Expand::Unknown(codec)),
    };
    (length == Some(body.len()))
        .then(|| Some(Bytes::from(image)))
        .ok_or(Expand::Malformed)
}
