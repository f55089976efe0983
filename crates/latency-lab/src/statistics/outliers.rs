//! Outliers. They are reported, never dropped.

use sched_trace::stats::median;

/// Iglewicz and Hoaglin (1993): a modified z-score above 3.5 marks an outlier.
const FAR: f64 = 3.5;
/// Factor that makes the median absolute deviation comparable with the standard deviation of a
/// normal distribution.
const BELL: f64 = 0.6745;

/// Indices of the samples that are too far from the median.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(middle) = median(values) else {
        return Vec::new();
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let spread = median(&distances).unwrap_or(0.0);
    if spread == 0.0 {
        return Vec::new();
    }
    let far = |&(_, distance): &(usize, &f64)| BELL * distance / spread > FAR;
    distances
        .iter()
        .enumerate()
        .filter(far)
        .map(|(place, _)| place)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lonely_sample_is_pointed_at() {
        assert_eq!(outliers(&[10.0, 11.0, 9.0, 10.5, 9.5, 60.0, 10.2]), [5]);
    }

    #[test]
    fn even_samples_have_none() {
        assert!(outliers(&[1.0, 2.0, 3.0, 4.0, 5.0]).is_empty());
        assert!(outliers(&[7.0; 9]).is_empty());
        assert!(outliers(&[]).is_empty());
    }
}
