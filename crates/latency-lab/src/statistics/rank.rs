//! The rank test of Mann and Whitney (1947): does one side tend to be larger? It assumes no
//! distribution, which matters here: latencies have long tails.

/// Above this many samples in all, or with ties, the normal approximation is used.
const EXACT_UP_TO: usize = 40;

/// Result of the rank test on two sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranks {
    /// The chance (two-sided) of ranks at least this uneven if both sides came from one
    /// distribution.
    pub p_value: f64,
    /// The part of all pairs in which the sample of the second side is lower; ties count half.
    pub chance_lower: f64,
}

/// Compares the ranks. Empty sides differ in nothing.
pub fn rank_test(first: &[f64], second: &[f64]) -> Ranks {
    if first.is_empty() || second.is_empty() {
        return Ranks {
            p_value: 1.0,
            chance_lower: 0.5,
        };
    }
    let (ranks, ties) = pooled_ranks(first, second);
    let rank_sum: f64 = ranks[..first.len()].iter().sum();
    let (n, m) = (first.len() as f64, second.len() as f64);
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let p_value = if ties == 0.0 && first.len() + second.len() <= EXACT_UP_TO {
        exact(first.len(), second.len(), u.round() as usize)
    } else {
        approximate(n, m, u, ties)
    };
    Ranks {
        p_value,
        // U counts the pairs in which the sample of the first side is higher.
        chance_lower: u / (n * m),
    }
}

/// Ranks in the order of the input (first, then second); equal values share their middle rank.
/// Beside it the sum of t^3 - t over groups of ties.
fn pooled_ranks(first: &[f64], second: &[f64]) -> (Vec<f64>, f64) {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_unstable_by(|&a, &b| all[a].total_cmp(&all[b]));
    let mut ranks = vec![0.0; all.len()];
    let mut ties = 0.0;
    for group in order
        .chunk_by(|&a, &b| all[a] == all[b])
        .scan(0, |before, group| {
            let start = *before;
            *before += group.len();
            Some((start, group))
        })
    {
        let (start, members) = group;
        let size = members.len() as f64;
        let shared = start as f64 + (size + 1.0) / 2.0;
        members.iter().for_each(|&member| ranks[member] = shared);
        ties += size.powi(3) - size;
    }
    (ranks, ties)
}

/// Counts the orderings of each U by building sides up one sample at a time.
fn exact(n: usize, m: usize, u: usize) -> f64 {
    let most = n * m;
    // ways[i][u]: orderings of i of the first side among the m seen so far.
    let mut ways = vec![vec![0.0f64; most + 1]; n + 1];
    ways[0][0] = 1.0;
    for seen in 1..=n + m {
        // Taking the sample at place `seen` for side one as its i-th adds seen - i to U.
        for i in (1..=n.min(seen)).rev() {
            if seen - i > m {
                continue;
            }
            let add = seen - i;
            for sum in (add..=most).rev() {
                let from = ways[i - 1][sum - add];
                ways[i][sum] += from;
            }
        }
    }
    let total: f64 = ways[n].iter().sum();
    let tail: f64 = ways[n][..=u.min(most - u)].iter().sum();
    (2.0 * tail / total).min(1.0)
}

/// Normal approximation with the correction for ties and for continuity.
fn approximate(n: f64, m: f64, u: f64, ties: f64) -> f64 {
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
    upper_tail(distance / variance.sqrt()) * 2.0
}

/// P(Z > z) for z >= 0: a power series near the middle, a continued fraction in the tail.
fn upper_tail(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < 3.0 {
        let (mut term, mut sum, mut odd) = (z, z, 1.0);
        while term > sum * 1e-17 {
            odd += 2.0;
            term *= z * z / odd;
            sum += term;
        }
        0.5 - density * sum
    } else {
        let fraction = (1..=60).rev().fold(z, |below, k| z + f64::from(k) / below);
        density / fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(first: &[f64], second: &[f64]) -> f64 {
        rank_test(first, second).p_value
    }

    fn ramp(from: usize, count: usize) -> Vec<f64> {
        (from..from + count).map(|value| value as f64).collect()
    }

    #[test]
    fn the_normal_tail_has_its_tabled_values() {
        for (z, tail) in [
            (0.0, 0.5),
            (1.0, 0.158_655_254),
            (1.959_964, 0.025),
            (3.0, 0.001_349_898),
            (5.0, 2.866_516e-7),
        ] {
            assert!(
                (upper_tail(z) / tail - 1.0).abs() < 1e-5,
                "{z}: {}",
                upper_tail(z)
            );
        }
    }

    #[test]
    fn small_sides_are_counted_exactly() {
        // Of the C(6,3) = 20 orderings, one puts all of a side first: 2/20. For 5 and 5: 2/252.
        assert!((p(&ramp(0, 3), &ramp(10, 3)) - 0.1).abs() < 1e-12);
        assert!((p(&ramp(0, 5), &ramp(10, 5)) - 2.0 / 252.0).abs() < 1e-12);
        // 1,3 against 2,4: U is 1 of 0..4, its tail holds 2 of 6 orderings, twice that is 2/3.
        assert!((p(&[1.0, 3.0], &[2.0, 4.0]) - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn exact_and_approximate_agree_where_they_meet() {
        let first: Vec<f64> = (0..18).map(|k| f64::from(k) * 1.7).collect();
        let second: Vec<f64> = (0..20).map(|k| f64::from(k) * 1.9 + 5.03).collect();
        let (ranks, _) = pooled_ranks(&first, &second);
        let u = ranks[..18].iter().sum::<f64>() - 18.0 * 19.0 / 2.0;
        let (exact, approximate) = (exact(18, 20, u as usize), approximate(18.0, 20.0, u, 0.0));
        assert!((exact - approximate).abs() < 0.005, "{exact} {approximate}");
    }

    #[test]
    fn equal_sides_and_constant_sides_show_nothing() {
        assert!(p(&ramp(0, 30), &ramp(0, 30)) > 0.99);
        assert_eq!(p(&[4.0; 10], &[4.0; 10]), 1.0);
        assert_eq!(p(&[], &[1.0]), 1.0);
    }

    #[test]
    fn distinct_sides_differ_in_either_order() {
        let (low, high) = (ramp(0, 50), ramp(30, 50));
        assert!(p(&low, &high) < 1e-6);
        assert!((p(&low, &high) - p(&high, &low)).abs() < 1e-12);
        assert!(rank_test(&high, &low).chance_lower > 0.9);
        assert_eq!(rank_test(&[1.0, 2.0], &[1.0, 2.0]).chance_lower, 0.5);
    }
}
