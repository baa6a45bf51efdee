//! Do transactions obey snapshot isolation, and those that asked for it serializability, all in the order of real time?
//!
//! Every transaction has two points, its snapshot and its commit; they are one where it only reads, writes blindly (a batch), or is serializable. The history is right if and only if
//! all points can be put in one order that keeps:
//!
//! - *own*: a transaction's snapshot comes before its commit;
//! - *wr*: a commit comes before every snapshot that shows one of its values;
//! - *rw*: a snapshot that shows a value comes before the commit that replaces it;
//! - *ww*: a commit comes before the one that replaces its value;
//! - *time*: what had returned before something was called comes before it.
//!
//! That is a graph without cycles. In the words of Adya: a cycle of ww alone is G0, of ww and wr G1c, with one rw G-single, with more G2. Which value replaces which is known, for
//! each write names the value before it: it has read it, or nobody else writes that cell.
//!
//! Thread safety: functions of their arguments.

use super::linear::{ABSENT, UNKNOWN, Value};
use super::value::name;
use std::collections::{HashMap, HashSet, VecDeque};

/// A place that holds a value.
pub type Cell = u16;

/// A transaction, or whatever else reads or writes several cells at once.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// Who ran it, for people.
    pub client: u16,
    /// As what, for people.
    pub via: &'static str,
    /// What its snapshot showed.
    pub reads: Vec<(Cell, Value)>,
    /// Cell, the value before, the new value.
    pub writes: Vec<(Cell, Value, Value)>,
    /// When its snapshot was taken.
    pub begin: (u64, u64),
    /// When it was committed; the return is [`UNKNOWN`] where nobody knows whether it was.
    pub commit: (u64, u64),
    /// Snapshot and commit are one point.
    pub joined: bool,
}

/// Points from which a short cycle is searched.
const STARTS_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Own,
    Wr(Cell),
    Rw(Cell),
    Ww(Cell),
    Time,
}

struct Graph<'a> {
    txns: &'a [Txn],
    /// Two points a transaction, then one for every return.
    edges: Vec<Vec<(u32, Why)>>,
}

/// Checks the transactions of an epoch; `initial` says what each cell held before. Gives the number of edges.
///
/// # Errors
/// What is wrong, for people.
pub fn check(initial: &[Value], txns: &[Txn]) -> Result<u64, String> {
    let seen: HashSet<(Cell, Value)> = txns
        .iter()
        .flat_map(|txn| txn.reads.iter().copied())
        .collect();
    // Of what is unknown only what was seen has happened for sure.
    let happened = |txn: &Txn| {
        let mut writes = txn.writes.iter();
        txn.commit.1 != UNKNOWN || writes.any(|(cell, _, new)| seen.contains(&(*cell, *new)))
    };
    let mut writer: HashMap<(Cell, Value), usize> = HashMap::new();
    let mut next: HashMap<(Cell, Value), usize> = HashMap::new();
    for (index, txn) in txns.iter().enumerate().filter(|(_, txn)| happened(txn)) {
        for (cell, old, new) in &txn.writes {
            writer.insert((*cell, *new), index);
            if let Some(other) = next.insert((*cell, *old), index) {
                return Err(format!(
                    "lost update: both replace {} in cell {cell}\n  {}\n  {}\n",
                    name(*old),
                    tell(&txns[other]),
                    tell(txn)
                ));
            }
        }
    }
    let mut graph = Graph {
        txns,
        edges: vec![Vec::new(); txns.len() * 2],
    };
    for (index, txn) in txns.iter().enumerate() {
        if !txn.writes.is_empty() && !happened(txn) {
            continue;
        }
        if !txn.joined {
            graph.add(index * 2, index * 2 + 1, Why::Own);
        }
        for (cell, value) in &txn.reads {
            match writer.get(&(*cell, *value)) {
                Some(from) => graph.add(graph.commit(*from), graph.snapshot(index), Why::Wr(*cell)),
                None if initial.get(usize::from(*cell)) == Some(value) => {}
                None => {
                    return Err(format!(
                        "cell {cell} shows {}, which nobody committed:\n  {}\n",
                        name(*value),
                        tell(txn)
                    ));
                }
            }
            if let Some(to) = next.get(&(*cell, *value)).filter(|to| **to != index) {
                graph.add(graph.snapshot(index), graph.commit(*to), Why::Rw(*cell));
            }
        }
        for (cell, old, _) in &txn.writes {
            if let Some(from) = writer.get(&(*cell, *old)).filter(|from| **from != index) {
                graph.add(graph.commit(*from), graph.commit(index), Why::Ww(*cell));
            }
        }
    }
    graph.add_time();
    let edges = graph.edges.iter().map(|edges| edges.len() as u64).sum();
    match graph.cycle() {
        None => Ok(edges),
        Some(cycle) => Err(cycle),
    }
}

impl Graph<'_> {
    fn commit(&self, txn: usize) -> usize {
        txn * 2 + 1
    }

    fn snapshot(&self, txn: usize) -> usize {
        txn * 2 + usize::from(self.txns[txn].joined)
    }

    fn add(&mut self, from: usize, to: usize, why: Why) {
        if from != to {
            self.edges[from].push((to as u32, why));
        }
    }

    /// Real time, with an edge or two a point: returns form a chain, and whoever is called hangs on its last link.
    fn add_time(&mut self) {
        let mut events = Vec::new();
        for (index, txn) in self.txns.iter().enumerate() {
            if !txn.joined {
                events.push((txn.begin, index * 2));
            }
            let at = if txn.joined && txn.writes.is_empty() {
                txn.begin
            } else {
                txn.commit
            };
            events.push((at, index * 2 + 1));
        }
        let mut times: Vec<(u64, bool, usize)> = Vec::new();
        for ((call, ret), point) in events {
            times.push((call, false, point));
            if ret != UNKNOWN {
                times.push((ret, true, point));
            }
        }
        times.sort_unstable();
        let mut last: Option<usize> = None;
        for (_, is_return, point) in times {
            if is_return {
                let link = self.edges.len();
                self.edges.push(Vec::new());
                if let Some(last) = last {
                    self.add(last, link, Why::Time);
                }
                self.add(point, link, Why::Time);
                last = Some(link);
            } else if let Some(last) = last {
                self.add(last, point, Why::Time);
            }
        }
    }

    /// What is left when everything that nothing comes before is taken away again and again: cycles, and what hangs on them. A short one of them for people.
    fn cycle(&self) -> Option<String> {
        let mut before = vec![0_u32; self.edges.len()];
        for (to, _) in self.edges.iter().flatten() {
            before[*to as usize] += 1;
        }
        let mut free: Vec<usize> = (0..before.len())
            .filter(|point| before[*point] == 0)
            .collect();
        let mut left = before.len();
        while let Some(point) = free.pop() {
            left -= 1;
            for (to, _) in &self.edges[point] {
                before[*to as usize] -= 1;
                if before[*to as usize] == 0 {
                    free.push(*to as usize);
                }
            }
        }
        if left == 0 {
            return None;
        }
        let points = (0..self.txns.len() * 2).filter(|point| before[*point] > 0);
        let mut best: Option<Vec<(usize, Why)>> = None;
        for point in points.take(STARTS_MAX) {
            let than = best.as_ref().map_or(usize::MAX, Vec::len);
            best = self.shortest(point, &before, than).or(best);
        }
        Some(best.map_or_else(
            || "a cycle, far from where it was searched for".into(),
            |cycle| self.tell_cycle(&cycle),
        ))
    }

    /// The shortest cycle through a point, if it is shorter `than`, by breadth-first search among the points that are left.
    fn shortest(&self, start: usize, before: &[u32], than: usize) -> Option<Vec<(usize, Why)>> {
        // How each point was reached: from where, why, and in how many steps.
        let mut from: Vec<Option<(usize, Why, usize)>> = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(point) = queue.pop_front() {
            let steps = 1 + match from[point] {
                Some((_, _, steps)) if point != start => steps,
                _ => 0,
            };
            if steps >= than {
                return None;
            }
            for (to, why) in &self.edges[point] {
                let to = *to as usize;
                if before[to] == 0 || from[to].is_some() {
                    continue;
                }
                from[to] = Some((point, *why, steps));
                if to == start {
                    let mut cycle = Vec::new();
                    let mut at = start;
                    while let Some((earlier, why, _)) = from[at].take() {
                        cycle.push((earlier, why));
                        at = earlier;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                queue.push_back(to);
            }
        }
        None
    }

    fn tell_cycle(&self, cycle: &[(usize, Why)]) -> String {
        let count = |wanted: fn(&Why) -> bool| cycle.iter().filter(|(_, why)| wanted(why)).count();
        let anti = count(|why| matches!(why, Why::Rw(_)));
        let shown = count(|why| matches!(why, Why::Wr(_)));
        let kind = match (anti, shown) {
            (0, 0) => "G0, a dirty write",
            (0, _) => "G1c, circular information flow",
            (1, _) => "G-single, read skew",
            _ => "G2, write skew",
        };
        let mut text = format!("a cycle ({kind}):\n");
        let points = self.txns.len() * 2;
        for (point, why) in cycle {
            if *point < points {
                let part = match point % 2 {
                    0 => "snapshot of",
                    _ => "commit of  ",
                };
                text += &format!("  {part} {}\n", tell(&self.txns[point / 2]));
            }
            text += &match why {
                Why::Own => "    comes before its own\n".to_string(),
                Why::Wr(cell) => format!("    wrote what is seen in cell {cell} by the\n"),
                Why::Rw(cell) => format!("    saw in cell {cell} what is replaced by the\n"),
                Why::Ww(cell) => format!("    wrote what is replaced in cell {cell} by the\n"),
                Why::Time if *point < points => {
                    "    had returned before the call of the\n".to_string()
                }
                Why::Time => String::new(),
            };
        }
        text + "  (which is the first)\n"
    }
}

fn tell(txn: &Txn) -> String {
    let reads: Vec<String> = txn
        .reads
        .iter()
        .map(|(cell, value)| format!("{cell}={}", name(*value)))
        .collect();
    let writes: Vec<String> = txn
        .writes
        .iter()
        .map(|(cell, old, new)| format!("{cell}:{}→{}", name(*old), name(*new)))
        .collect();
    format!(
        "client {} ({}), taken {:?}, committed {:?}, sees {} writes {}",
        txn.client,
        txn.via,
        txn.begin,
        txn.commit,
        reads.join(" "),
        writes.join(" ")
    )
}

/// Cells that nothing was written to.
#[must_use]
pub fn empty(cells: usize) -> Vec<Value> {
    vec![ABSENT; cells]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(
        reads: &[(Cell, Value)],
        writes: &[(Cell, Value, Value)],
        begin: (u64, u64),
        commit: (u64, u64),
        joined: bool,
    ) -> Txn {
        Txn {
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            begin,
            commit,
            joined,
            ..Txn::default()
        }
    }

    fn found(txns: &[Txn]) -> String {
        check(&empty(4), txns).err().unwrap_or_default()
    }

    #[test]
    fn write_skew_is_allowed_under_snapshot_isolation_and_found_under_serializability() {
        let skew = |joined| {
            [
                txn(&[(0, 0), (1, 0)], &[(0, 0, 7)], (1, 2), (5, 8), joined),
                txn(&[(0, 0), (1, 0)], &[(1, 0, 8)], (3, 4), (6, 9), joined),
            ]
        };
        assert_eq!(found(&skew(false)), "");
        assert!(found(&skew(true)).contains("G2"), "{}", found(&skew(true)));
    }

    #[test]
    fn half_a_batch_is_read_skew() {
        let batch = txn(&[], &[(0, 0, 7), (1, 0, 8)], (1, 1), (1, 6), true);
        let whole = txn(&[(0, 7), (1, 8)], &[], (2, 5), (0, 0), true);
        let half = txn(&[(0, 7), (1, 0)], &[], (2, 5), (0, 0), true);
        assert_eq!(found(&[batch.clone(), whole]), "");
        assert!(found(&[batch, half]).contains("G-single"));
    }

    #[test]
    fn a_snapshot_older_than_its_call_is_found_and_so_is_one_that_goes_back() {
        let write = txn(&[], &[(0, 0, 7)], (1, 1), (1, 2), true);
        let stale = txn(&[(0, 0)], &[], (3, 4), (0, 0), true);
        assert!(found(&[write.clone(), stale.clone()]).contains("a cycle"));
        let early = Txn {
            begin: (1, 9),
            ..stale
        };
        assert_eq!(found(&[write, early]), "");
    }

    #[test]
    fn lost_updates_and_values_of_the_aborted_are_found() {
        let one = txn(&[(0, 0)], &[(0, 0, 7)], (1, 2), (5, 6), false);
        let two = txn(&[(0, 0)], &[(0, 0, 8)], (3, 4), (7, 8), false);
        assert!(found(&[one, two]).contains("lost update"));
        let aborted = txn(&[(0, 9)], &[], (1, 2), (0, 0), true);
        assert!(found(&[aborted]).contains("nobody committed"));
    }

    #[test]
    fn what_is_unknown_counts_where_it_was_seen() {
        let unknown = txn(&[], &[(0, 0, 7)], (5, 5), (5, UNKNOWN), true);
        let none = txn(&[(0, 0)], &[], (6, 7), (0, 0), true);
        let seen = txn(&[(0, 7)], &[], (8, 9), (0, 0), true);
        let late = txn(&[(0, 0)], &[], (10, 11), (0, 0), true);
        assert_eq!(found(&[unknown.clone(), none.clone(), seen.clone()]), "");
        assert!(found(&[unknown, none, seen, late]).contains("a cycle"));
    }
}
