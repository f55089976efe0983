//! The fields of switches and wake-ups in the format of libtraceevent's plugins, for perf script
//! and trace-cmd report: `a:1 [120] S ==> b:2 [98]`, `b:2 [98] success=1 CPU:001`.

use crate::schema::{ABSENT, Value, Values, What};

/// The values of an event's fields, if the event is printed in this format.
pub(super) fn values(what: What, text: &str) -> Option<Values<'_>> {
    let mut values = ABSENT;
    match what {
        What::Switch => {
            let (prev, next) = text.rsplit_once(" ==> ")?;
            let (prev, state) = prev.rsplit_once(' ')?;
            values[..3].copy_from_slice(&task(prev)?);
            values[3] = Value::Text(state.as_bytes());
            values[4..].copy_from_slice(&task(next)?);
        }
        What::Waking | What::Wakeup | What::WakeupNew => {
            let (woken, cpu) = text.rsplit_once(" CPU:")?;
            let woken = woken
                .rsplit_once(" success=")
                .map_or(woken, |(woken, _)| woken);
            values[..3].copy_from_slice(&task(woken)?);
            values[3] = number(cpu.trim())?;
        }
        _ => return None,
    }
    Some(values)
}

/// `NAME:PID [PRIORITY]`.
fn task(text: &str) -> Option<[Value<'_>; 3]> {
    let (thread, prio) = text.trim().strip_suffix(']')?.rsplit_once(" [")?;
    let (comm, pid) = thread.rsplit_once(':')?;
    Some([Value::Text(comm.as_bytes()), number(pid)?, number(prio)?])
}

fn number<'a>(text: &str) -> Option<Value<'a>> {
    Some(Value::Number(text.parse::<i64>().ok()? as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything_that_stands_between_fields() {
        let values = values(What::Switch, "a:1 [9] ==> b:77 [120] R ==> c d:5 [98]").unwrap();
        let name = |text: &'static str| Value::Text(text.as_bytes());
        let expected = [
            name("a:1 [9] ==> b"),
            Value::Number(77),
            Value::Number(120),
            name("R"),
        ];
        assert_eq!(values[..4], expected);
        assert_eq!(
            values[4..],
            [name("c d"), Value::Number(5), Value::Number(98)]
        );
    }

    #[test]
    fn wake_ups_have_the_cpu_at_the_end() {
        for text in ["b:2 [98] success=1 CPU:003", "b:2 [98] CPU:003"] {
            let values = values(What::Waking, text).unwrap();
            assert_eq!(
                (values[1], values[3]),
                (Value::Number(2), Value::Number(3)),
                "{text}"
            );
        }
        assert_eq!(values(What::Migrate, "b:2 [98] CPU:003"), None);
    }
}
