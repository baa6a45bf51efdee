//! RESP, the protocol of Redis: requests are taken apart by [`parser`] and [`inline`], answers put together by [`reply`] in an [`output`] queue.
//!
//! Knows bytes only: no commands, no database, no sockets.

pub(crate) mod inline;
pub(crate) mod number;
pub(crate) mod output;
pub(crate) mod parser;
pub(crate) mod reply;

/// The arguments of one command: slices of one buffer.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    data: &'a [u8],
    spans: &'a [Span],
}

/// Where an argument lies in its buffer, in bytes. 32 bits each: a buffer never exceeds [`parser::BUFFER_BYTES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl<'a> Args<'a> {
    pub(crate) fn new(data: &'a [u8], spans: &'a [Span]) -> Self {
        Args { data, spans }
    }

    /// Number of arguments, the command's name included.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Argument `index` (0 is the name).
    ///
    /// # Panics
    /// If `index` is not below `len()`: a command's arity was not checked.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        let start = span.start as usize;
        &self.data[start..start + span.len as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let copy = *self;
        (0..copy.len()).map(move |index| copy.get(index))
    }

    /// All arguments from `index` on.
    pub(crate) fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.iter().skip(index)
    }

    /// The arguments from `index` on, as a command of their own.
    pub(crate) fn skip(&self, index: usize) -> Args<'a> {
        Args::new(self.data, &self.spans[index..])
    }

    /// Bytes of all arguments together.
    pub(crate) fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }
}

/// A command that outlives its connection's read buffer: one queued by MULTI.
pub(crate) struct OwnedArgs {
    data: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    pub(crate) fn copy(args: Args<'_>) -> Self {
        let mut data = Vec::with_capacity(args.bytes());
        let mut spans = Vec::with_capacity(args.len());
        for argument in args.iter() {
            spans.push(Span {
                start: parser::offset(data.len()),
                len: parser::offset(argument.len()),
            });
            data.extend_from_slice(argument);
        }
        OwnedArgs { data, spans }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.data, &self.spans)
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // Beside its own two allocations, with the allocator's heads: its place in a list that grows by doubling.
        let place = 2 * (size_of::<OwnedArgs>() + size_of::<usize>()) + 32;
        self.data.capacity() + self.spans.capacity() * size_of::<Span>() + place
    }
}
