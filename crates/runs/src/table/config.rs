//! How tables are written, and what all tables of an index share.

use bytes::Bytes;
use glintdb_cache::{Cache, CacheKey};
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::{DbId, FileId};
use glintdb_flash::{ReadQueue, Volume};
use std::sync::Arc;

/// Compression of key blocks. The discriminants are the codec byte of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// No compression. Each block has whole flash pages of its own, so that an uncached lookup
    /// reads one aligned page.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard at level 3. Needs the cargo feature `zstd`. Without it, opening such a table fails
    /// with `UnsupportedFormat`.
    Zstd,
}

impl Compression {
    /// The name, as options spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Its byte in the format of tables, and in the encoded options of indexes.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
        }
    }

    /// The compression with this [`code`](Self::code). `None`: there is none.
    #[must_use]
    pub const fn from_code(code: u64) -> Option<Compression> {
        match code {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Whether this build can compress and decompress it. Zstandard needs the cargo feature `zstd`.
    #[must_use]
    pub fn is_available(self) -> bool {
        self != Compression::Zstd || cfg!(feature = "zstd")
    }
}

/// How a table is written.
#[derive(Clone, PartialEq, Debug)]
pub struct TableConfig {
    /// Size at which key blocks are cut, in bytes before compression: 4096 to 65536. Without
    /// compression, a multiple of 4096.
    pub block_bytes: usize,
    /// Entries from one key that is stored whole (as far as it differs from the block's first key)
    /// to the next: 1 to 255. Fewer make lookups faster and blocks larger.
    pub restart_interval: usize,
    /// Size of the filter; 0: none. About 1.0 % false positives at 10.
    pub filter_bits_per_key: f32,
    /// How blocks are stored.
    pub compression: Compression,
}

impl TableConfig {
    /// The default with `compression`, blocks cut at 16 KiB where they are compressed.
    #[must_use]
    pub fn with_compression(compression: Compression) -> Self {
        let block_bytes = match compression {
            Compression::None => 4 << 10,
            Compression::Lz4 | Compression::Zstd => 16 << 10,
        };
        TableConfig {
            block_bytes,
            compression,
            ..TableConfig::default()
        }
    }

    /// Holds the limits.
    ///
    /// # Panics
    /// Where a field is out of its limits.
    pub(super) fn check(&self) {
        assert!(
            (4 << 10..=64 << 10).contains(&self.block_bytes),
            "block_bytes is 4096 to 65536"
        );
        assert!(
            self.compression != Compression::None || self.block_bytes.is_multiple_of(4 << 10),
            "block_bytes of uncompressed tables is a multiple of 4096"
        );
        assert!(
            (1..=255).contains(&self.restart_interval),
            "restart_interval is 1 to 255"
        );
        assert!(
            (0.0..=64.0).contains(&self.filter_bits_per_key),
            "filter_bits_per_key is 0 to 64"
        );
    }
}

impl Default for TableConfig {
    fn default() -> Self {
        TableConfig {
            block_bytes: 4 << 10,
            restart_interval: 8,
            filter_bits_per_key: 10.0,
            compression: Compression::None,
        }
    }
}

/// Which blocks go to the cache as they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// None.
    None,
    /// Those for which the cache has room.
    WithRoom,
    /// All: they replace blocks that the cache has.
    Replaces,
}

/// What the tables of an index share. Thread-safe.
pub struct TableEnv {
    /// Where the files are.
    pub volume: Arc<dyn Volume>,
    /// Where blocks are kept that were read and verified.
    pub cache: Arc<Cache>,
    /// Where fences, filters and buffers are accounted.
    pub memory: Arc<MemoryBudget>,
    /// Every checksum is bound to it.
    pub db: DbId,
    /// Where compactions have their input read ahead; `None`: each cursor does so for itself.
    pub reads: Option<Arc<ReadQueue>>,
    /// Whether filters and fences are accounted as [`MemoryPart::Remap`].
    pub remaps: bool,
}

impl TableEnv {
    /// What fences are accounted as.
    pub(super) fn fences_part(&self) -> MemoryPart {
        match self.remaps {
            true => MemoryPart::Remap,
            false => MemoryPart::Fences,
        }
    }

    /// What filters are accounted as.
    pub(super) fn filters_part(&self) -> MemoryPart {
        match self.remaps {
            true => MemoryPart::Remap,
            false => MemoryPart::Filters,
        }
    }

    /// The image of a block, if the cache has it.
    #[inline]
    pub(super) fn cached(&self, file: FileId, offset: u64) -> Option<Bytes> {
        self.cache.get(&CacheKey::Block(file, offset))
    }

    /// Whether the cache has a block.
    pub(super) fn is_cached(&self, file: FileId, offset: u64) -> bool {
        self.cache.contains(&CacheKey::Block(file, offset))
    }

    /// Gives a copy of the image of a block to the cache, and returns the copy: the image may be
    /// part of something larger, and read buffers are aligned at 4 KiB, so that the headers of all
    /// blocks would share one set of the processor's caches.
    pub(super) fn keep(&self, file: FileId, offset: u64, image: &[u8]) -> Bytes {
        let key = CacheKey::Block(file, offset);
        self.cache.insert(key, &[image])
    }

    /// Gives a copy of a block that was just written to the cache, if `caching` says so.
    pub(super) fn keep_written(&self, file: FileId, offset: u64, image: &[u8], caching: Caching) {
        let key = CacheKey::Block(file, offset);
        match caching {
            Caching::Replaces => self.cache.insert_seen(key, &[image]),
            Caching::WithRoom if self.cache.room_bytes() > image.len() => {
                self.cache.put(key, &[image]);
            }
            Caching::WithRoom | Caching::None => {}
        }
    }
}
