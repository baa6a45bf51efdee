//! Batches of reads. A plan sorts the requests by file and place, and merges neighbours (unless the
//! volume's options say otherwise). Then the reads are done with many in flight (io_uring, libaio,
//! threads) or one after the other.
//!
//! Thread safety: any thread.
//!
//! Invariants:
//! 1. Every request has a result when a batch returns, whatever failed.
//! 2. Requests are merged only if there is no gap between them, so that the merged read has not one
//!    byte more than they have, and only up to `MERGED_BYTES_MAX`, because a merged buffer lives as
//!    long as any result that views it.

use crate::buffer::AlignedBuffer;
use crate::dir::{DirFile, Extent, ReadEngine, Shared, slice_of};
use crate::reads::flight::Queues;
use crate::reads::queue::Kind;
use crate::volume::{BegunBatch, ReadRequest};
use bytes::Bytes;
use glintdb_core::{Error, Result, planted};
use std::ops::Range;
use std::sync::Arc;

/// The most bytes of a read that is merged from several requests.
pub(crate) const MERGED_BYTES_MAX: usize = 256 << 10;

/// The way in which a volume reads batches.
pub(crate) struct Engine {
    queues: Option<Arc<Queues>>,
    description: String,
}

/// One read that serves one or more requests.
pub(crate) struct Span {
    pub(crate) extent: Extent,
    /// Its requests, as a range of [`Plan::order`].
    members: Range<usize>,
}

/// The reads of a batch.
pub(crate) struct Plan {
    /// Indices of the requests, in the order of their reads.
    order: Vec<usize>,
    pub(crate) spans: Vec<Span>,
    files: usize,
}

impl Engine {
    /// Returns the engine `wanted`. `Auto` takes the first that this system has of io_uring, libaio
    /// (only with direct I/O, because it blocks on buffered reads) and threads.
    pub(crate) fn choose(
        wanted: ReadEngine,
        depth: usize,
        begun_max: usize,
        direct: bool,
    ) -> Result<Self> {
        let kinds = match wanted {
            ReadEngine::Sync => {
                return Ok(Engine {
                    queues: None,
                    description: "synchronous reads (asked for)".to_owned(),
                });
            }
            ReadEngine::IoUring => vec![Kind::Uring],
            ReadEngine::Libaio => vec![Kind::Aio],
            ReadEngine::Threads => vec![Kind::threads()],
            ReadEngine::Auto if direct => vec![Kind::Uring, Kind::Aio, Kind::threads()],
            ReadEngine::Auto => vec![Kind::Uring, Kind::threads()],
        };
        let mut refused = Vec::new();
        for kind in kinds {
            let name = kind.name();
            match Queues::probe(kind, depth, begun_max) {
                Ok(queues) => {
                    let description = match refused.is_empty() {
                        true => queues.describe(),
                        false => format!("{} ({})", queues.describe(), refused.join(", ")),
                    };
                    return Ok(Engine {
                        queues: Some(Arc::new(queues)),
                        description,
                    });
                }
                Err(error) => refused.push(format!("{name} refused: {error}")),
            }
        }
        match wanted {
            ReadEngine::Auto => Ok(Engine {
                queues: None,
                description: format!("synchronous reads ({})", refused.join(", ")),
            }),
            _ => Err(Error::invalid(refused.join(", "))),
        }
    }

    pub(crate) fn describe(&self) -> &str {
        &self.description
    }

    pub(crate) fn read_batch(&self, shared: &Arc<Shared>, requests: &mut [ReadRequest]) {
        let plan = Plan::new(shared, requests);
        self.read(shared, requests, &plan);
    }

    fn read(&self, shared: &Shared, requests: &mut [ReadRequest], plan: &Plan) {
        match &self.queues {
            Some(queues) if plan.spans.len() > 1 => queues.read(shared, requests, plan),
            _ => plan.read_unfinished(shared, requests),
        }
    }

    pub(crate) fn begin_batch(
        &self,
        shared: &Arc<Shared>,
        mut requests: Vec<ReadRequest>,
    ) -> BegunBatch {
        let plan = Plan::new(shared, &mut requests);
        let begun = match &self.queues {
            Some(queues) => queues.begin(shared, requests, plan),
            None => Err((requests, plan)),
        };
        match begun {
            Ok(begun) => BegunBatch::new(move || begun.wait()),
            Err((mut requests, plan)) => {
                self.read(shared, &mut requests, &plan);
                BegunBatch::done(requests)
            }
        }
    }
}

impl Plan {
    pub(crate) fn new(shared: &Arc<Shared>, requests: &mut [ReadRequest]) -> Self {
        let mut wanted: Vec<(*const DirFile, Extent, usize)> = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter_mut().enumerate() {
            request.result = match dir_file(request) {
                Some(file) if file.belongs_to(shared) => {
                    match file.extent(request.offset, request.length) {
                        Ok(Some(extent)) => {
                            wanted.push((std::ptr::from_ref(file), extent, index));
                            None
                        }
                        Ok(None) => Some(Ok(Bytes::new())),
                        Err(error) => Some(Err(error)),
                    }
                }
                _ => Some(request.file.read_at(request.offset, request.length)),
            };
        }
        wanted.sort_unstable_by_key(|(file, extent, _)| (*file, extent.direct, extent.start));
        let mut plan = Plan {
            order: Vec::with_capacity(wanted.len()),
            spans: Vec::with_capacity(wanted.len()),
            files: wanted.chunk_by(|one, next| one.0 == next.0).count(),
        };
        if !shared.sort_reads {
            wanted.sort_unstable_by_key(|(_, _, index)| *index);
        }
        let mut last_file = std::ptr::null();
        for (file, extent, index) in wanted {
            let at = plan.order.len();
            plan.order.push(index);
            let merged = shared.merge_reads
                && file == last_file
                && plan
                    .spans
                    .last_mut()
                    .is_some_and(|span| span.absorb(extent, at));
            if !merged {
                plan.spans.push(Span {
                    extent,
                    members: at..at + 1,
                });
            }
            last_file = file;
        }
        plan
    }

    /// The number of files that it reads.
    pub(crate) fn files(&self) -> usize {
        self.files
    }

    /// The file that `span` reads.
    pub(crate) fn file<'a>(&self, requests: &'a [ReadRequest], span: usize) -> &'a DirFile {
        let request = self.order[self.spans[span].members.start];
        dir_file(&requests[request]).expect("only requests of our files are planned")
    }

    /// Reads what `buffer` lacks of `span` with blocking calls.
    pub(crate) fn read_rest(
        &self,
        requests: &[ReadRequest],
        span: usize,
        mut buffer: AlignedBuffer,
        filled: usize,
    ) -> Result<Bytes> {
        let extent = self.spans[span].extent;
        let filled =
            self.file(requests, span)
                .read_extent_from(extent, buffer.as_mut_slice(), filled)?;
        buffer.truncate(filled);
        Ok(buffer.into_bytes())
    }

    /// Reads every span that has no result yet, one after the other.
    pub(crate) fn read_unfinished(&self, shared: &Shared, requests: &mut [ReadRequest]) {
        for span in 0..self.spans.len() {
            if !self.is_finished(requests, span) {
                let answer = shared
                    .common
                    .pool
                    .take(self.spans[span].extent.length)
                    .and_then(|buffer| self.read_rest(requests, span, buffer, 0));
                self.finish(requests, span, answer);
            }
        }
    }

    /// Whether `span` has a result.
    fn is_finished(&self, requests: &[ReadRequest], span: usize) -> bool {
        let first = self.order[self.spans[span].members.start];
        requests[first].result.is_some()
    }

    /// Gives each request of `span` its part of the read, or the read's error.
    pub(crate) fn finish(&self, requests: &mut [ReadRequest], span: usize, answer: Result<Bytes>) {
        let span = &self.spans[span];
        let read_bytes = answer.as_ref().map_or(0, Bytes::len);
        assert!(
            read_bytes <= span.extent.length,
            "a read of {} bytes has {read_bytes}",
            span.extent.length
        );
        for &index in &self.order[span.members.clone()] {
            let request = &mut requests[index];
            assert!(
                request.result.is_none(),
                "each request is answered once: {} bytes at {}",
                request.length,
                request.offset
            );
            request.result = Some(match &answer {
                Ok(data) => Ok(slice_of(
                    data,
                    span.extent.start,
                    request.offset,
                    request.length,
                )),
                Err(error) => Err(error.clone()),
            });
        }
    }
}

impl Span {
    /// Merges `next`, which is of the same file, into this span if it starts within the span or
    /// right behind it and the whole stays small. Returns whether it did.
    fn absorb(&mut self, next: Extent, member: usize) -> bool {
        let own = self.extent;
        let end = own.start + own.length as u64;
        if next.direct != own.direct || !(own.start..=end).contains(&next.start) {
            return false;
        }
        let end = end.max(next.start + next.length as u64);
        let Ok(length) = usize::try_from(end - own.start) else {
            return false;
        };
        if length > MERGED_BYTES_MAX && length > own.length {
            return false;
        }
        self.extent.length = planted!(
            "flash: reads that are merged are as long as the last one",
            length,
            next.length
        );
        assert!(
            self.extent.start <= next.start && end <= self.extent.start + self.extent.length as u64,
            "a merged read has every byte that its parts have: {:?} and {next:?}",
            self.extent
        );
        assert_eq!(
            self.members.end, member,
            "the requests of a merged read are neighbours"
        );
        self.members.end = member + 1;
        true
    }
}

fn dir_file(request: &ReadRequest) -> Option<&DirFile> {
    DirFile::of(&*request.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::{DirOptions, DirVolume};
    use crate::volume::{CreateOptions, DataClass, Volume};
    use glintdb_core::{FileId, FileKind};

    /// Returns the reads that a volume with these options plans for requests of 4 KiB at `places`
    /// (in units of 4 KiB), as places and lengths, and the number of files.
    fn planned(options: DirOptions, places: &[(usize, u64)]) -> (Vec<(u64, usize)>, usize) {
        let directory = tempfile::tempdir().unwrap();
        let volume = DirVolume::open(directory.path(), options).unwrap();
        let files = [1, 2].map(|number| {
            let class = DataClass::Log;
            let (reserve_bytes, direct) = (0, true);
            let options = CreateOptions {
                class,
                reserve_bytes,
                direct,
            };
            let id = FileId::new(FileKind::Table, number);
            volume.create(id, options).unwrap()
        });
        let request = |&(file, place): &(usize, u64)| {
            ReadRequest::new(Arc::clone(&files[file]), place * 4096, 4096)
        };
        let mut requests: Vec<_> = places.iter().map(request).collect();
        let plan = Plan::new(volume.shared(), &mut requests);
        let spans = (plan.spans.iter())
            .map(|span| (span.extent.start / 4096, span.extent.length / 4096))
            .collect();
        (spans, plan.files())
    }

    #[test]
    fn reads_are_sorted_and_merged_unless_options_say_otherwise() {
        let wanted = [(0, 7), (0, 2), (0, 3), (0, 6)];
        let reads = |sort_reads, merge_reads| {
            let options = DirOptions {
                sort_reads,
                merge_reads,
                ..DirOptions::default()
            };
            planned(options, &wanted).0
        };
        assert_eq!(reads(true, true), [(2, 2), (6, 2)]);
        assert_eq!(reads(true, false), [(2, 1), (3, 1), (6, 1), (7, 1)]);
        assert_eq!(reads(false, true), [(7, 1), (2, 2), (6, 1)]);
        assert_eq!(reads(false, false), [(7, 1), (2, 1), (3, 1), (6, 1)]);
    }

    #[test]
    fn files_of_unsorted_reads_are_counted_once() {
        let options = DirOptions {
            sort_reads: false,
            ..DirOptions::default()
        };
        assert_eq!(planned(options, &[(0, 1), (1, 1), (0, 5), (1, 5)]).1, 2);
    }
}
