//! Counts what ran, from the closing lines that `cargo test` and `pytest` print.

/// Sums of what ran.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// One check that is not a test runner's.
    pub(crate) fn one(passed: bool) -> Counts {
        Counts {
            passed: u64::from(passed),
            failed: u64::from(!passed),
            skipped: 0,
        }
    }

    /// A line `test result: ok. 3 passed; 0 failed; 1 ignored; …` of `cargo test`.
    pub(crate) fn of_cargo_line(line: &str) -> Option<Counts> {
        let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
        let mut counts = Counts::default();
        for part in rest.split(';') {
            let Some((number, word)) = part.trim().split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match word {
                "passed" => counts.passed += number,
                "failed" => counts.failed += number,
                "ignored" => counts.skipped += number,
                _ => {}
            }
        }
        Some(counts)
    }

    /// The closing line of `pytest`: `=== 3 passed, 1 skipped in 0.12s ===`, in `-q` mode without the rules.
    pub(crate) fn of_pytest_line(line: &str) -> Option<Counts> {
        let line = line.trim_matches(|c| c == '=' || c == ' ');
        let (parts, _) = line.split_once(" in ")?;
        let mut counts = Counts::default();
        for part in parts.split(", ") {
            let (number, word) = part.split_once(' ')?;
            let number = number.parse::<u64>().ok()?;
            match word {
                "passed" | "xpassed" => counts.passed += number,
                "failed" | "error" | "errors" => counts.failed += number,
                "skipped" | "xfailed" | "deselected" => counts.skipped += number,
                "warning" | "warnings" => {}
                _ => return None,
            }
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn closing_lines_of_cargo_test_are_read() {
        let line = "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        let counts = Counts {
            passed: 12,
            failed: 1,
            skipped: 2,
        };
        assert_eq!(Counts::of_cargo_line(line), Some(counts));
        assert_eq!(Counts::of_cargo_line("test a::b ... ok"), None);
    }

    #[test]
    fn closing_lines_of_pytest_are_read() {
        let counts = Counts {
            passed: 5,
            failed: 3,
            skipped: 1,
        };
        let line = "=== 2 failed, 5 passed, 1 skipped, 4 warnings, 1 error in 1.20s ===";
        assert_eq!(Counts::of_pytest_line(line), Some(counts));
        assert_eq!(
            Counts::of_pytest_line("5 passed in 0.01s").map(|c| c.passed),
            Some(5)
        );
        assert_eq!(Counts::of_pytest_line("collected 5 items in a hurry"), None);
    }
}
