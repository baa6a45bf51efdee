//! What a connection still has to send: small answers are collected in one buffer, large values are queued as they are, without a copy.
//!
//! Not shared between threads: one a connection.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Values from this size on are queued, not copied: copying 16 KiB costs about a microsecond, as much as queueing does.
const QUEUE_BYTES_MIN: usize = 16 << 10;

/// Buffers larger than this are given back once they are empty.
const KEEP_BYTES_MAX: usize = 64 << 10;

/// Most pieces of one `writev`.
pub(crate) const SLICES_MAX: usize = 16;

enum Piece {
    Small(Vec<u8>, usize),
    Large(Bytes),
}

impl Piece {
    fn rest(&self) -> &[u8] {
        match self {
            Piece::Small(bytes, sent) => &bytes[*sent..],
            Piece::Large(bytes) => bytes,
        }
    }
}

/// So much more is put in, and whoever bounds all connections together is asked again.
const ASK_BYTES: usize = 1 << 20;

/// Is told how many bytes more are held; says whether they may be.
pub(crate) type MayGrow = Box<dyn Fn(usize) -> bool + Send>;

/// See the module.
pub(crate) struct Output {
    may_grow: Option<MayGrow>,
    /// Bytes held when it was asked last.
    asked: usize,
    /// More than this is not kept: what does not fit is dropped, and the conversation is over.
    bytes_max: usize,
    overflown: bool,
    pieces: VecDeque<Piece>,
    tail: Vec<u8>,
    tail_sent: usize,
    /// Bytes ever put in, and ever sent.
    put: u64,
    sent: u64,
}

impl Output {
    /// An empty one that never holds more than `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Output {
            may_grow: None,
            asked: 0,
            bytes_max,
            overflown: false,
            pieces: VecDeque::new(),
            tail: Vec::new(),
            tail_sent: 0,
            put: 0,
            sent: 0,
        }
    }

    /// One whose growth is also bounded from outside: a command with a large answer is bounded while it runs.
    pub(crate) fn asking(bytes_max: usize, may_grow: MayGrow) -> Self {
        Output {
            may_grow: Some(may_grow),
            ..Output::new(bytes_max)
        }
    }

    /// Something was dropped: what follows in the stream makes no sense any more.
    pub(crate) fn is_overflown(&self) -> bool {
        self.overflown
    }

    /// Bytes that fit.
    pub(crate) fn room_bytes(&self) -> usize {
        self.bytes_max.saturating_sub(self.pending_bytes())
    }

    fn fits(&mut self, bytes: usize) -> bool {
        self.overflown |= bytes > self.room_bytes();
        let held = self.pending_bytes().saturating_add(bytes);
        if !self.overflown && held > self.asked + ASK_BYTES {
            let grown = held - self.asked;
            self.asked = held;
            self.overflown = self.may_grow.as_ref().is_some_and(|ask| !ask(grown));
        }
        !self.overflown
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.put == self.sent
    }

    /// Bytes still to be sent.
    pub(crate) fn pending_bytes(&self) -> usize {
        usize::try_from(self.put - self.sent).unwrap_or(usize::MAX)
    }

    /// A position for [`Output::take_from`]: all bytes ever put in.
    pub(crate) fn position(&self) -> u64 {
        self.put
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if !self.fits(bytes.len()) {
            return;
        }
        self.tail.extend_from_slice(bytes);
        self.put += bytes.len() as u64;
    }

    /// Appends a value, without a copy where it is large.
    pub(crate) fn push_value(&mut self, value: Bytes) {
        if value.len() < QUEUE_BYTES_MIN {
            self.push(&value);
            return;
        }
        if !self.fits(value.len()) {
            return;
        }
        self.put += value.len() as u64;
        if self.tail.len() > self.tail_sent {
            let tail = std::mem::take(&mut self.tail);
            self.pieces.push_back(Piece::Small(tail, self.tail_sent));
        } else {
            self.tail.clear();
        }
        self.tail_sent = 0;
        self.pieces.push_back(Piece::Large(value));
    }

    /// Takes back everything put in since `position`.
    ///
    /// # Panics
    /// If part of it has been sent.
    pub(crate) fn take_from(&mut self, position: u64) -> Vec<u8> {
        assert!(
            position >= self.sent && position <= self.put,
            "an answer that is being sent cannot be taken back"
        );
        let mut pieces = Vec::new();
        let mut missing = usize::try_from(self.put - position).expect("answers fit memory");
        self.put = position;
        let tail = self.tail.len() - self.tail_sent;
        let from_tail = missing.min(tail);
        pieces.push(self.tail.split_off(self.tail.len() - from_tail));
        missing -= from_tail;
        while missing > 0 {
            let mut piece = self.pieces.pop_back().expect("bytes put in are queued");
            let length = piece.rest().len();
            if length <= missing {
                missing -= length;
                pieces.push(piece.rest().to_vec());
                continue;
            }
            let keep = length - missing;
            pieces.push(piece.rest()[keep..].to_vec());
            missing = 0;
            match &mut piece {
                Piece::Small(bytes, sent) => bytes.truncate(*sent + keep),
                Piece::Large(bytes) => bytes.truncate(keep),
            }
            self.pieces.push_back(piece);
        }
        pieces.reverse();
        pieces.concat()
    }

    /// The next bytes to send; the number of slices filled.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let tail = &self.tail[self.tail_sent..];
        let pieces = self
            .pieces
            .iter()
            .map(Piece::rest)
            .chain((!tail.is_empty()).then_some(tail));
        let mut count = 0;
        for (slot, piece) in slices.iter_mut().zip(pieces) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    /// Notes that the next `count` bytes were sent.
    pub(crate) fn advance(&mut self, mut count: usize) {
        self.sent += count as u64;
        assert!(self.sent <= self.put, "more was sent than there was");
        self.asked = self.asked.min(self.pending_bytes());
        while count > 0 {
            let Some(piece) = self.pieces.front_mut() else {
                self.tail_sent += count;
                break;
            };
            let length = piece.rest().len();
            if count >= length {
                count -= length;
                self.pieces.pop_front();
                continue;
            }
            match piece {
                Piece::Small(_, sent) => *sent += count,
                Piece::Large(bytes) => bytes.advance(count),
            }
            count = 0;
        }
        if self.tail_sent == self.tail.len() {
            self.tail.clear();
            self.tail_sent = 0;
            if self.tail.capacity() > KEEP_BYTES_MAX {
                self.tail = Vec::new();
            }
        }
    }

    /// Gives an idle connection's memory back.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            self.tail = Vec::new();
            self.pieces = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(output: &mut Output, step: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = output.slices(&mut slices);
            let all: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
            let some = all.len().min(step);
            assert!(some > 0);
            sent.extend_from_slice(&all[..some]);
            output.advance(some);
        }
        sent
    }

    #[test]
    fn who_bounds_all_together_is_asked_in_steps() {
        let left = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(5 << 20));
        let counted = std::sync::Arc::clone(&left);
        let take = move |bytes: usize| {
            let order = std::sync::atomic::Ordering::Relaxed;
            counted
                .fetch_update(order, order, |left| left.checked_sub(bytes))
                .is_ok()
        };
        let mut output = Output::asking(usize::MAX, Box::new(take));
        for _ in 0..4 << 10 {
            output.push(&[0; 1024]);
        }
        assert!(!output.is_overflown());
        for _ in 0..3 << 10 {
            output.push(&[0; 1024]);
        }
        assert!(output.is_overflown());
        assert!(output.pending_bytes() <= 6 << 20);
    }

    #[test]
    fn what_does_not_fit_is_dropped_for_good() {
        let mut output = Output::new(40_000);
        output.push_value(Bytes::from(vec![1; 30_000]));
        output.push(&[2; 10_000]);
        assert!(!output.is_overflown());
        output.push(&[3]);
        assert!(output.is_overflown());
        assert_eq!(output.pending_bytes(), 40_000);
        output.advance(20_000);
        output.push_value(Bytes::from(vec![4; 17_000]));
        output.push(&[5]);
        assert_eq!(output.pending_bytes(), 20_000);
        assert_eq!(output.take_from(30_000), vec![2; 10_000]);
    }

    proptest! {
        #[test]
        fn prop_bytes_leave_in_order(
            parts in prop::collection::vec((any::<u8>(), 0usize..40_000), 0..20),
            step in 1usize..100_000,
            keep in any::<prop::sample::Index>(),
        ) {
            let mut output = Output::new(usize::MAX);
            let mut model = Vec::new();
            let mut marks = vec![0u64];
            for (byte, length) in parts {
                let part = vec![byte; length];
                model.extend_from_slice(&part);
                output.push_value(Bytes::from(part));
                marks.push(output.position());
            }
            let mark = *keep.get(&marks);
            let at = usize::try_from(mark).unwrap();
            prop_assert_eq!(&output.take_from(mark), &model[at..]);
            model.truncate(at);
            output.push(b"end");
            model.extend_from_slice(b"end");
            prop_assert_eq!(output.pending_bytes(), model.len());
            prop_assert_eq!(drain(&mut output, step), model);
        }
    }
}
