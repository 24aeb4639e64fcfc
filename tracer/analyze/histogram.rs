//! A histogram of durations: 32 steps to every power of two, so a quantile is at most 3% too high.

/// Steps to a power of two.
const STEPS: u64 = 32;

/// Counts durations.
///
/// Memory: 8 bytes for each step between the shortest and the longest, 15 KB at most whatever it counts; about 3 KB for
/// durations that differ by a factor of 4,000.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The place of `counts[0]`.
    first: u32,
    counts: Vec<u64>,
    count: u64,
    open: u64,
    total: u128,
    max: u64,
}

#[inline]
fn place(ns: u64) -> usize {
    let shift = (ns / STEPS).checked_ilog2().map_or(0, u64::from);
    (shift * STEPS + (ns >> shift)) as usize
}

/// The greatest value at this place.
fn top(place: usize) -> u64 {
    let place = place as u64;
    if place < 2 * STEPS {
        return place;
    }
    let shift = place / STEPS - 1;
    let step = place % STEPS + STEPS;
    (step << shift) + ((1 << shift) - 1)
}

impl Histogram {
    /// Counts one.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        let at = place(ns);
        match at.checked_sub(self.first as usize).and_then(|i| self.counts.get_mut(i)) {
            Some(count) => *count += 1,
            None => *self.make_room(at) += 1,
        }
        self.count += 1;
        self.total += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// Counts one that was still open when the trace ended, if `open`.
    #[inline]
    pub fn add_as(&mut self, ns: u64, open: bool) {
        self.add(ns);
        self.open += u64::from(open);
    }

    #[cold]
    fn make_room(&mut self, at: usize) -> &mut u64 {
        if self.counts.is_empty() {
            self.first = at as u32;
        }
        let first = self.first as usize;
        if at < first {
            self.counts.splice(0..0, std::iter::repeat_n(0, first - at));
            self.first = at as u32;
        } else if at - first >= self.counts.len() {
            self.counts.resize(at - first + 1, 0);
        }
        &mut self.counts[at - self.first as usize]
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (i, &count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            *self.make_room(other.first as usize + i) += count;
        }
        self.count += other.count;
        self.open += other.open;
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of them were still open when the trace ended.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// The greatest, in ns.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Their sum, in ns.
    pub fn total(&self) -> u128 {
        self.total
    }

    /// Their mean, in ns; 0 if there are none.
    pub fn mean(&self) -> u64 {
        self.total.checked_div(u128::from(self.count)).unwrap_or(0) as u64
    }

    /// The value that a share `q` (0 to 1) of all do not exceed, in ns.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (i, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return top(self.first as usize + i).min(self.max);
            }
        }
        self.max
    }

    /// How many were counted in each power of two: `(from, to, count)` in ns, `to` excluded, without gaps at the ends.
    pub fn octaves(&self) -> Vec<(u64, u64, u64)> {
        let mut octaves = vec![0; 65];
        for (i, &count) in self.counts.iter().enumerate() {
            let value = top(self.first as usize + i);
            octaves[value.checked_ilog2().map_or(0, |log| log as usize + 1)] += count;
        }
        let from = |i: usize| if i == 0 { 0 } else { 1u64 << (i - 1) };
        let to = |i: usize| 1u64.checked_shl(i as u32).unwrap_or(u64::MAX);
        let first = octaves.iter().position(|&count| count > 0).unwrap_or(0);
        let end = octaves.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        (first..end).map(|i| (from(i), to(i), octaves[i])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_order_and_tight() {
        let mut last = 0;
        for ns in
            (0..4000).chain((12..64).flat_map(|b| [(1 << b) - 1, 1 << b, (1 << b) + (1 << (b - 3))])).chain([u64::MAX])
        {
            let place = place(ns);
            assert!(place >= last);
            last = place;
            assert!(top(place) >= ns && (top(place) - ns) as f64 <= ns as f64 / 31.0, "{ns} {place} {}", top(place));
        }
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        // From the middle outwards: room is made at both ends.
        for ns in (1..=500).rev().zip(501..=1000).flat_map(|(a, b)| [a, b]) {
            histogram.add(ns);
        }
        assert!((500..=516).contains(&histogram.quantile(0.5)));
        assert_eq!(histogram.quantile(1.0), 1000);
        assert_eq!(histogram.quantile(0.0), 1);
        assert_eq!((histogram.count(), histogram.max(), histogram.total()), (1000, 1000, 500_500));
        assert_eq!(histogram.mean(), 500);
    }

    #[test]
    fn two_are_as_good_as_one() {
        let values = [3, 1 << 40, 77, 0, u64::MAX, 78, 77];
        let (mut all, mut left, mut right) = (Histogram::default(), Histogram::default(), Histogram::default());
        for (i, &ns) in values.iter().enumerate() {
            all.add_as(ns, i == 1);
            if i % 2 == 0 { &mut left } else { &mut right }.add_as(ns, i == 1);
        }
        left.merge(&right);
        left.merge(&Histogram::default());
        assert_eq!((left.count(), left.total(), left.open(), left.max()), (7, all.total(), 1, u64::MAX));
        for q in [0.0, 0.3, 0.5, 0.8, 1.0] {
            assert_eq!(left.quantile(q), all.quantile(q));
        }
    }

    #[test]
    fn octaves_count_everything() {
        let mut histogram = Histogram::default();
        assert!(histogram.octaves().is_empty());
        for ns in [1, 2, 3, 3, 1000, 1023, 1024] {
            histogram.add(ns);
        }
        let octaves = histogram.octaves();
        assert_eq!((octaves[0], octaves[1]), ((1, 2, 1), (2, 4, 3)));
        assert_eq!(octaves[octaves.len() - 2..], [(512, 1024, 2), (1024, 2048, 1)]);
        let mut extremes = Histogram::default();
        extremes.add(0);
        extremes.add(u64::MAX);
        let octaves = extremes.octaves();
        assert_eq!((octaves[0], octaves[octaves.len() - 1]), ((0, 1, 1), (1 << 63, u64::MAX, 1)));
    }
}
