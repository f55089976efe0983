//! Numbers engines that have the same name: all but the first show their number.

/// The place of each name among the names that equal it, counted from 1.
pub(crate) fn numbers<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<usize> {
    let names: Vec<&str> = names.into_iter().collect();
    let before = |at: usize| names[..=at].iter().filter(|it| **it == names[at]).count();
    (0..names.len()).map(before).collect()
}

/// The stored numbers of engines; an engine without a number (0) is numbered by place.
pub(crate) fn stored<'a>(engines: impl Iterator<Item = (&'a str, usize)>) -> Vec<usize> {
    let (names, stored): (Vec<&str>, Vec<usize>) = engines.unzip();
    let both = stored.into_iter().zip(numbers(names));
    let number = |(stored, place)| if stored > 0 { stored } else { place };
    both.map(number).collect()
}

/// An engine's name in reports: "erofast", or "erofast (2)" for the second engine of this name.
pub(crate) fn label(name: &str, number: usize) -> String {
    match number {
        0 | 1 => name.into(),
        number => format!("{name} ({number})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_of_one_name_are_told_apart() {
        let names = ["kernel", "erofast", "erofast", "kernel", "erofast"];
        let labels = names
            .iter()
            .zip(numbers(names))
            .map(|(name, number)| label(name, number));
        let expected = [
            "kernel",
            "erofast",
            "erofast (2)",
            "kernel (2)",
            "erofast (3)",
        ];
        assert!(labels.eq(expected));
    }
}
