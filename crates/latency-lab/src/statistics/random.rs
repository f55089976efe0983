//! A small seeded generator: the order of launches and the bootstrap repeat exactly.

/// SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, passes BigCrush; no secrets here.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound` (> 0). The bias of the multiplication is under bound / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// A number in 0.0..1.0.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Any order of `items` with equal chance.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let draw = |seed| {
            (0..8)
                .map(|_| 0)
                .scan(Random::new(seed), |r, _: i32| Some(r.bits()))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn a_shuffle_keeps_the_items_and_reaches_every_place() {
        let mut random = Random::new(1);
        let mut seen = [[false; 4]; 4];
        for _ in 0..200 {
            let mut items = [0, 1, 2, 3];
            random.shuffle(&mut items);
            items
                .iter()
                .enumerate()
                .for_each(|(place, &item)| seen[place][item] = true);
            items.sort_unstable();
            assert_eq!(items, [0, 1, 2, 3]);
        }
        assert!(seen.iter().flatten().all(|&reached| reached));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_average_in_the_middle() {
        let mut random = Random::new(3);
        let mean = (0..10_000).map(|_| random.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
