//! A histogram of durations: 32 steps to every power of two, so a quantile is at most 3% too high.

/// Steps to a power of two.
const STEPS: u64 = 32;

/// Counts durations. It takes 15 KB whatever it counts.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    total: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; place(u64::MAX) + 1], count: 0, total: 0, max: 0 }
    }
}

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
        self.counts[place(ns)] += 1;
        self.count += 1;
        self.total += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The greatest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Their sum.
    pub fn total(&self) -> u128 {
        self.total
    }

    /// The value that a share `q` (0 to 1) of all do not exceed.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (place, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return top(place).min(self.max);
            }
        }
        self.max
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
        for ns in 1..=1000 {
            histogram.add(ns);
        }
        assert!((500..=516).contains(&histogram.quantile(0.5)));
        assert_eq!(histogram.quantile(1.0), 1000);
        assert_eq!(histogram.quantile(0.0), 1);
        assert_eq!((histogram.count(), histogram.max(), histogram.total()), (1000, 1000, 500_500));
    }
}
