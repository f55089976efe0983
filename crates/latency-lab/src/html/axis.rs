//! The scale of a chart: the positions of values, and the ticks.

/// If the ratio of the largest to the smallest value exceeds this, the axis is logarithmic.
const WIDE: f64 = 20.0;
/// Approximate number of ticks for which a narrow chart has room.
const TICKS: f64 = 5.0;

/// A linear axis, which always includes zero, or a logarithmic axis, which cannot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    /// Distance between ticks; a logarithmic axis has one tick per decade.
    step: f64,
    pub(super) logarithmic: bool,
}

impl Axis {
    /// Fits an axis to the values.
    pub(super) fn fit(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let (low, high) = (least.min(0.0), values.fold(0.0, f64::max));
        if least > 0.0 && high / least > WIDE {
            return Axis {
                low: 10f64.powf(least.log10().floor()),
                high: 10f64.powf(high.log10().ceil()),
                step: 10.0,
                logarithmic: true,
            };
        }
        let step = if high > low { step(high - low) } else { 1.0 };
        Axis {
            low: (low / step).floor() * step,
            high: (high / step).ceil().max(1.0) * step,
            step,
            logarithmic: false,
        }
    }

    /// The position of a value: 0.0 at the low end, 1.0 at the high end.
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
        let number = |value: f64| (value / self.step).round() as i32;
        (number(self.low)..=number(self.high))
            .map(|tick| f64::from(tick) * self.step)
            .collect()
    }
}

/// The step between ticks: 1, 2 or 5 times a power of ten.
fn step(span: f64) -> f64 {
    let rough = span / TICKS;
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
        assert!(!axis.logarithmic);
        assert_eq!(axis.ticks(), [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        assert_eq!(
            (axis.place(0.0), axis.place(250.0), axis.place(500.0)),
            (0.0, 0.5, 1.0)
        );
    }

    #[test]
    fn wide_values_get_decades() {
        let axis = Axis::fit([20.0, 30.0, 25_000.0].into_iter());
        assert!(axis.logarithmic);
        assert_eq!(axis.ticks().len(), 5);
        assert_eq!((axis.place(10.0), axis.place(100_000.0)), (0.0, 1.0));
        assert!((axis.place(1000.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn zero_is_at_zero() {
        let axis = Axis::fit([0.0, 30.0, 25_000.0].into_iter());
        assert!(!axis.logarithmic);
        assert_eq!((axis.ticks()[0], axis.place(0.0)), (0.0, 0.0));
        let axis = Axis::fit([-42.0, 8.0].into_iter());
        let ticks = [-50.0, -40.0, -30.0, -20.0, -10.0, 0.0, 10.0];
        assert_eq!((axis.ticks(), axis.place(0.0)), (ticks.into(), 50.0 / 60.0));
    }

    #[test]
    fn all_zeros_are_no_fault() {
        let axis = Axis::fit([0.0, 0.0].into_iter());
        assert_eq!(axis.place(0.0), 0.0);
        assert!(!axis.ticks().is_empty());
    }
}
