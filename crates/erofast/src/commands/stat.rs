//! `erofast stat`: the live counters of a mount.

use serde_json::Value;

use super::print_json;
use crate::cli::StatArgs;
use crate::outcome::Outcome;

/// Runs the subcommand.
pub fn run(args: &StatArgs) -> anyhow::Result<Outcome> {
    let counters = erofs_fuse::stat(&args.mountpoint)?;
    if args.prometheus {
        outln!("{}", erofs_fuse::prometheus(&counters).trim_end());
    } else if args.json {
        print_json(&counters)?;
    } else {
        print(&counters, 0)?;
    }
    Ok(Outcome::Fine)
}

/// Objects as indented names; what stands in a list, one entry after another.
fn print(value: &Value, depth: usize) -> anyhow::Result<()> {
    let indent = "  ".repeat(depth);
    let Value::Object(fields) = value else {
        return Ok(());
    };
    for (name, field) in fields {
        match field {
            Value::Object(_) => {
                outln!("{indent}{name}:");
                print(field, depth + 1)?;
            }
            Value::Array(entries) if entries.iter().any(Value::is_object) => {
                for (index, entry) in entries.iter().enumerate() {
                    outln!("{indent}{name} {index}:");
                    print(entry, depth + 1)?;
                }
            }
            Value::String(text) => outln!("{indent}{name}: {text}"),
            other => outln!("{indent}{name}: {other}"),
        }
    }
    Ok(())
}
