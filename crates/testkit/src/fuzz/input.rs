//! The bytes of a fuzzer as a source of choices: every read succeeds, so every input means something, and changing a byte changes little.
//!
//! Thread safety: none is needed.

/// Reads choices from the front of an input; zeros behind its end.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Input { rest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Everything that was not read yet.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let length = N.min(self.rest.len());
        let (head, rest) = self.rest.split_at(length);
        out[..length].copy_from_slice(head);
        self.rest = rest;
        out
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Bytes behind a length of one byte, or of three where the first is 255; as many as there are.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let length = match self.u8() {
            255 => usize::from(self.u16()),
            length => usize::from(length),
        };
        let (head, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        head
    }
}

/// Writes what [`Input`] reads; for seeds.
#[derive(Default)]
pub(crate) struct Output(pub(crate) Vec<u8>);

impl Output {
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        match u8::try_from(bytes.len()) {
            Ok(length) if length < 255 => self.0.push(length),
            _ => {
                self.0.push(255);
                self.raw(&(bytes.len() as u16).to_le_bytes());
            }
        }
        self.raw(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_end_reads_as_zeros() {
        let long = vec![7; 300];
        let mut out = Output::default();
        out.raw(&[1, 2, 0]).bytes(b"abc").bytes(&long);
        let mut input = Input::new(&out.0);
        assert_eq!((input.u8(), input.u16()), (1, 2));
        assert_eq!(input.bytes(), b"abc");
        assert_eq!(input.bytes(), &long[..]);
        assert!(input.is_empty());
        assert_eq!((input.u64(), input.bytes()), (0, &b""[..]));
        assert_eq!(Input::new(&[9, 1]).bytes(), &[1]);
    }
}
