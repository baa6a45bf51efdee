//! Appending what is short: keys and their ends are copied several times on their way through a merge, and a call of `memcpy` costs as much as the rest of the step.

/// `out.extend_from_slice(bytes)`, without a call where `bytes` are at most 32.
#[inline(always)]
pub(super) fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        8..=16 => append_twice::<8>(out, bytes),
        4..=7 => append_twice::<4>(out, bytes),
        17..=32 => append_twice::<16>(out, bytes),
        0..=3 => bytes.iter().for_each(|&byte| out.push(byte)),
        _ => out.extend_from_slice(bytes),
    }
}

/// The first and the last `N` bytes, which may overlap, where that is all.
#[inline(always)]
fn append_twice<const N: usize>(out: &mut Vec<u8>, bytes: &[u8]) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) {
        let end = out.len() + bytes.len();
        out.extend_from_slice(first);
        out.truncate(end - N);
        out.extend_from_slice(last);
    }
}

/// `out.extend_from_slice(&from[start..end])`, without a call where that is at most `N` bytes and more follow in `from`: takes `N`, and cuts off what is too many. `None`
/// where `from` is shorter.
#[inline(always)]
pub(super) fn append_part<const N: usize>(
    out: &mut Vec<u8>,
    from: &[u8],
    start: usize,
    end: usize,
) -> Option<()> {
    let bytes = from.get(start..end)?;
    match from.get(start..).and_then(|rest| rest.first_chunk::<N>()) {
        Some(chunk) if bytes.len() <= N => {
            let end = out.len() + bytes.len();
            out.extend_from_slice(chunk);
            out.truncate(end);
        }
        _ => out.extend_from_slice(bytes),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_appended_as_it_is() {
        let from: Vec<u8> = (1..=100).collect();
        for length in 0..=70 {
            for start in [0, 3, 100 - length] {
                let part = &from[start..start + length];
                let (mut one, mut other) = (vec![9], vec![9]);
                append(&mut one, part);
                append_part::<16>(&mut other, &from, start, start + length).unwrap();
                assert_eq!((&one[1..], &other[1..]), (part, part));
            }
        }
        let mut out = Vec::new();
        assert_eq!(append_part::<16>(&mut out, &from, 90, 101), None);
        assert_eq!(append_part::<16>(&mut out, &from, 101, 101), None);
        assert!(out.is_empty());
    }
}
