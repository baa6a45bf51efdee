//! What is asked of the process that serves a disk, and its answers, as bytes of a socket. Both ends are built together, so there is no version.
//!
//! Thread safety: as any value.

use crate::fault::{Effect, Fault, On, Times};
use crate::image::Image;
use crate::server::Operations;
use crate::tape::{Entry, Tape};
use std::io::{self, Read, Write};
use std::ops::Range;

/// Something that goes over the socket.
pub(crate) trait Wire: Sized {
    fn put(&self, to: &mut impl Write) -> io::Result<()>;
    fn get(from: &mut impl Read) -> io::Result<Self>;
}

/// What is asked, and what the answer is.
pub(crate) enum Request {
    /// An [`Image`].
    Image,
    /// `()`.
    Insert(Image),
    /// `()`.
    Record,
    /// A `u64`.
    Position,
    /// A [`Tape`], where there is one.
    Tape,
    /// `()`.
    Fail(Fault),
    /// `()`.
    Repair,
    /// [`Operations`].
    Operations,
}

/// What no sender sends.
fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no message of a disk")
}

/// The one of this number.
fn one_of<T: Copy>(all: &[T], from: &mut impl Read) -> io::Result<T> {
    let number = usize::get(from)?;
    all.get(number).copied().ok_or_else(foreign)
}

/// Its number.
fn number_of<T: PartialEq>(all: &[T], one: &T, to: &mut impl Write) -> io::Result<()> {
    let number = all.iter().position(|each| each == one);
    number.ok_or_else(foreign)?.put(to)
}

/// That it was done.
impl Wire for () {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        0_usize.put(to)
    }

    fn get(from: &mut impl Read) -> io::Result<()> {
        usize::get(from).map(drop)
    }
}

impl Wire for u64 {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.to_le_bytes())
    }

    fn get(from: &mut impl Read) -> io::Result<u64> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Wire for usize {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        (*self as u64).put(to)
    }

    fn get(from: &mut impl Read) -> io::Result<usize> {
        usize::try_from(u64::get(from)?).map_err(|_| foreign())
    }
}

/// As [`Vec<u8>`](Vec) takes them.
fn put_bytes(bytes: &[u8], to: &mut impl Write) -> io::Result<()> {
    bytes.len().put(to)?;
    to.write_all(bytes)
}

impl Wire for Vec<u8> {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        put_bytes(self, to)
    }

    fn get(from: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::get(from)?];
        from.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Wire for String {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        put_bytes(self.as_bytes(), to)
    }

    fn get(from: &mut impl Read) -> io::Result<String> {
        String::from_utf8(Vec::get(from)?).map_err(|_| foreign())
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        usize::from(self.is_some()).put(to)?;
        self.as_ref().map_or(Ok(()), |value| value.put(to))
    }

    fn get(from: &mut impl Read) -> io::Result<Option<T>> {
        match usize::get(from)? {
            0 => Ok(None),
            _ => T::get(from).map(Some),
        }
    }
}

impl Wire for Range<usize> {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        self.start.put(to)?;
        self.end.put(to)
    }

    fn get(from: &mut impl Read) -> io::Result<Range<usize>> {
        Ok(usize::get(from)?..usize::get(from)?)
    }
}

impl Wire for Image {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        self.bytes().put(to)?;
        self.written().count().put(to)?;
        for (offset, block) in self.written() {
            offset.put(to)?;
            to.write_all(block)?;
        }
        Ok(())
    }

    fn get(from: &mut impl Read) -> io::Result<Image> {
        let mut image = Image::zeroed(usize::get(from)?);
        for _ in 0..usize::get(from)? {
            let offset = usize::get(from)?;
            let mut block = [0; crate::image::BLOCK_BYTES];
            from.read_exact(&mut block)?;
            image.write(offset, &block);
        }
        Ok(image)
    }
}

impl Wire for Entry {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Entry::Flush => 0_usize.put(to),
            Entry::Write { offset, bytes } => {
                1_usize.put(to)?;
                offset.put(to)?;
                put_bytes(bytes, to)
            }
        }
    }

    fn get(from: &mut impl Read) -> io::Result<Entry> {
        match usize::get(from)? {
            0 => Ok(Entry::Flush),
            _ => Ok(Entry::Write {
                offset: usize::get(from)?,
                bytes: Vec::get(from)?.into(),
            }),
        }
    }
}

impl Wire for Tape {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        self.base.put(to)?;
        self.entries.len().put(to)?;
        self.entries.iter().try_for_each(|entry| entry.put(to))
    }

    fn get(from: &mut impl Read) -> io::Result<Tape> {
        let base = Image::get(from)?;
        let count = usize::get(from)?;
        let entries = (0..count)
            .map(|_| Entry::get(from))
            .collect::<Result<_, _>>();
        Ok(Tape {
            base,
            entries: entries?,
        })
    }
}

const ON: [On; 3] = [On::Read, On::Write, On::Flush];
const TIMES: [Times; 2] = [Times::Once, Times::Sticky];
const EFFECTS: [Effect; 3] = [Effect::Error, Effect::ErrorAndLoss, Effect::Lie];

impl Wire for Fault {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        number_of(&ON, &self.on, to)?;
        self.range.put(to)?;
        self.skip.put(to)?;
        number_of(&TIMES, &self.times, to)?;
        number_of(&EFFECTS, &self.effect, to)
    }

    fn get(from: &mut impl Read) -> io::Result<Fault> {
        Ok(Fault {
            on: one_of(&ON, from)?,
            range: Option::get(from)?,
            skip: u64::get(from)?,
            times: one_of(&TIMES, from)?,
            effect: one_of(&EFFECTS, from)?,
        })
    }
}

impl Wire for Operations {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        let Operations {
            reads,
            writes,
            flushes,
            struck,
        } = self;
        [reads, writes, flushes, struck]
            .into_iter()
            .try_for_each(|count| count.put(to))
    }

    fn get(from: &mut impl Read) -> io::Result<Operations> {
        Ok(Operations {
            reads: u64::get(from)?,
            writes: u64::get(from)?,
            flushes: u64::get(from)?,
            struck: u64::get(from)?,
        })
    }
}

impl Wire for Request {
    fn put(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Request::Image => 0_usize.put(to),
            Request::Insert(image) => {
                1_usize.put(to)?;
                image.put(to)
            }
            Request::Record => 2_usize.put(to),
            Request::Position => 3_usize.put(to),
            Request::Tape => 4_usize.put(to),
            Request::Fail(fault) => {
                5_usize.put(to)?;
                fault.put(to)
            }
            Request::Repair => 6_usize.put(to),
            Request::Operations => 7_usize.put(to),
        }
    }

    fn get(from: &mut impl Read) -> io::Result<Request> {
        Ok(match usize::get(from)? {
            0 => Request::Image,
            1 => Request::Insert(Image::get(from)?),
            2 => Request::Record,
            3 => Request::Position,
            4 => Request::Tape,
            5 => Request::Fail(Fault::get(from)?),
            6 => Request::Repair,
            7 => Request::Operations,
            _ => return Err(foreign()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent<T: Wire>(value: &T) -> T {
        let mut bytes = Vec::new();
        value.put(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        let got = T::get(&mut rest).unwrap();
        assert!(rest.is_empty(), "read to the end");
        got
    }

    #[test]
    fn what_is_sent_arrives() {
        let mut image = Image::zeroed(1 << 20);
        image.write(5000, &[7; 9000]);
        let entries = vec![
            Entry::Write {
                offset: 512,
                bytes: [3; 1024].into(),
            },
            Entry::Flush,
        ];
        let tape = sent(&Some(Tape {
            base: image,
            entries,
        }))
        .unwrap();
        let mut bytes = [0; 3];
        tape.base.read(4999, &mut bytes);
        assert_eq!((tape.base.bytes(), bytes), (1 << 20, [0, 7, 7]));
        let [Entry::Write { offset: 512, bytes }, Entry::Flush] = &tape.entries[..] else {
            panic!("{:?}", tape.entries);
        };
        assert_eq!(bytes[..], [3; 1024]);
        let fault = Fault {
            range: Some(1..2),
            effect: Effect::Lie,
            ..Fault::sticky(On::Flush, 9)
        };
        let Request::Fail(got) = sent(&Request::Fail(fault.clone())) else {
            panic!("another request");
        };
        assert_eq!(got, fault);
        assert!(Request::get(&mut &[99; 8][..]).is_err());
    }
}
