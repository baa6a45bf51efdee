//! Patterns of SCAN's MATCH, as in Redis: `*`, `?`, `[abc]`, `[^a-c]`, and `\` before a character that stands for itself.

/// Does all of `text` match `pattern`? Takes at most `pattern × text` steps: only the last `*` is ever gone back to.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last `*`, and the text it has not taken yet.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        if t == text.len() {
            return p == pattern.len();
        }
        match one(&pattern[p..], text[t]) {
            Some(length) => {
                p += length;
                t += 1;
            }
            None => {
                let Some((star, taken)) = retry else {
                    return false;
                };
                p = star;
                t = taken + 1;
                retry = Some((star, t));
            }
        }
    }
}

/// The bytes that every match starts with, and whether they are the whole pattern.
pub(crate) fn literal_prefix(pattern: &[u8]) -> (Vec<u8>, bool) {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        match rest {
            [] => return (prefix, true),
            [b'*' | b'?' | b'[', ..] => return (prefix, false),
            [b'\\', byte, after @ ..] => {
                prefix.push(*byte);
                rest = after;
            }
            [byte, after @ ..] => {
                prefix.push(*byte);
                rest = after;
            }
        }
    }
}

/// Matches one byte against the pattern's first item; the item's length, if it matches.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', ..] => class(pattern, byte),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Matches `[…]`; a class that is not closed ends with the pattern, as in Redis.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut found = false;
    loop {
        match &pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("*a*b*", "xxayybzz", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            (r"h\?llo", "h?llo", true),
            (r"h\?llo", "hallo", false),
            (r"[\]]", "]", true),
            ("[abc", "b", true),
            ("a\\", "a\\", true),
            ("user:*:name", "user:1:2:name", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(40);
        let mut text = b"a".repeat(20_000);
        text.push(b'b');
        assert!(matches(&pattern, &text));
        let mut pattern = pattern;
        pattern.push(b'c');
        assert!(!matches(&pattern, &text));
    }

    #[test]
    fn the_literal_prefix_narrows_a_scan() {
        assert_eq!(literal_prefix(b"user:*"), (b"user:".to_vec(), false));
        assert_eq!(literal_prefix(br"a\*b"), (b"a*b".to_vec(), true));
        assert_eq!(literal_prefix(b"[ab]c"), (Vec::new(), false));
    }
}
