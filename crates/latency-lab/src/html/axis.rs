//! Scales of a chart: positions of values, and ticks.

/// Beyond this span from smallest to largest, a logarithmic axis shows more.
const WIDE: f64 = 20.0;
/// About as many ticks as a narrow chart has room for.
const TICKS: f64 = 5.0;

/// An axis over values that are not negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// Fits the values; zeros sit at the low end of a logarithmic axis.
    pub(super) fn fit(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let high = values.clone().fold(0.0, f64::max);
        let low = values
            .filter(|&value| value > 0.0)
            .fold(f64::INFINITY, f64::min);
        if high > 0.0 && high / low > WIDE {
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            return Axis {
                low: 10f64.powf(low),
                high: 10f64.powf(high),
                logarithmic: true,
            };
        }
        let step = step(high.max(1e-9));
        Axis {
            low: 0.0,
            high: (high / step).ceil().max(1.0) * step,
            logarithmic: false,
        }
    }

    /// 0.0 at the low end, 1.0 at the high end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self.logarithmic {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades)
                .map(|decade| self.low * 10f64.powi(decade))
                .collect();
        }
        let step = step(self.high);
        (0..=(self.high / step).round() as i32)
            .map(|tick| f64::from(tick) * step)
            .collect()
    }

    pub(super) fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }
}

/// 1, 2 or 5 times a power of ten.
fn step(high: f64) -> f64 {
    let rough = high / TICKS;
    let decade = 10f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|times| times * decade >= rough * 0.999);
    times.unwrap_or(10.0) * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_values_get_a_plain_axis_from_zero() {
        let axis = Axis::fit([355.0, 478.0].into_iter());
        assert!(!axis.is_logarithmic());
        assert_eq!(axis.ticks(), [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        assert_eq!(
            (axis.place(0.0), axis.place(250.0), axis.place(500.0)),
            (0.0, 0.5, 1.0)
        );
    }

    #[test]
    fn wide_values_get_decades_and_zeros_their_low_end() {
        let axis = Axis::fit([0.0, 30.0, 25_000.0].into_iter());
        assert!(axis.is_logarithmic());
        assert_eq!(axis.ticks().len(), 5);
        assert_eq!((axis.place(0.0), axis.place(100_000.0)), (0.0, 1.0));
        assert!((axis.place(1000.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn all_zeros_are_no_fault() {
        let axis = Axis::fit([0.0, 0.0].into_iter());
        assert_eq!(axis.place(0.0), 0.0);
        assert!(!axis.ticks().is_empty());
    }
}
