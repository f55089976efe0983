//! The fields of a line: `NAME=VALUE`, or the kernel's own format.

use crate::schema::{ABSENT, EventType, FieldType, Form, Value, Values};

/// The values of the fields, parsed from the last to the first: a thread name may look like a
/// field, and the fields after it are numbers.
pub(super) fn values<'a>(event: &EventType, mut text: &'a str) -> Option<Values<'a>> {
    let mut values = ABSENT;
    for (at, field) in event.fields.iter().enumerate().rev() {
        match find(text, field, at == 0) {
            Some((start, found)) => {
                values[at] = value(field.form, found)?;
                text = &text[..start];
            }
            None if field.optional => {}
            None => return None,
        }
    }
    Some(values)
}

/// Where a field begins, and the text after its key.
fn find<'a>(text: &'a str, field: &FieldType, first: bool) -> Option<(usize, &'a str)> {
    let plain = |key: &str| {
        let found = text.strip_prefix(key).map(|rest| (0, rest));
        let found = found.filter(|(_, rest)| first || !rest.contains(key));
        found.or_else(|| {
            let at = text.rmatch_indices(key).map(|(at, _)| at);
            let mut at = at.filter(|at| key.starts_with([' ', ':']) || text[..*at].ends_with(' '));
            at.next().map(|at| (at, &text[at + key.len()..]))
        })
    };
    let own = (!field.key.is_empty()).then(|| plain(field.key)).flatten();
    // "NAME=" is also how trace-cmd report -R prints every field.
    own.or_else(|| plain(&format!("{}=", field.name)))
}

/// The value at the beginning of a text.
fn value(form: Form, text: &str) -> Option<Value<'_>> {
    let word = text.split([' ', ',', ':']).next()?;
    Some(match form {
        Form::Ignored => Value::Absent,
        Form::Text => Value::Text(text.trim_end().as_bytes()),
        Form::Function | Form::Place => Value::Text(word.as_bytes()),
        Form::Address => Value::Number(address(word)?),
        Form::Number => Value::Number(word.parse::<i64>().ok()? as u64),
        // trace-cmd report -R prints the state as a number.
        Form::State => match word.parse() {
            Ok(bits) => Value::Number(bits),
            Err(_) => Value::Text(word.as_bytes()),
        },
        Form::Queue if address(text).is_some() && text.len() >= 8 => Value::Absent,
        Form::Queue => Value::Text(text.trim_end().as_bytes()),
    })
}

/// An address, printed with or without its prefix.
fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}
