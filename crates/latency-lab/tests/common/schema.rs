//! Checks a report against its schema in docs/schemas, using the JSON Schema keywords that the
//! schemas use.
//!
//! It is stricter than JSON Schema in one respect: a field that is missing from the schema is an
//! error, so that every field has a description. Readers of the JSON must accept additional fields.

use std::path::Path;

use serde_json::{Map, Value};

/// Keywords that do not constrain the report.
const REMARKS: [&str; 4] = ["$schema", "$defs", "title", "description"];

/// Panics with the path of the first mismatch.
#[track_caller]
pub fn check(name: &str, report: &Value) {
    if let Some(fault) = fault(name, report) {
        panic!("{fault}");
    }
}

/// The first mismatch, with its path.
pub fn fault(name: &str, report: &Value) -> Option<String> {
    let file = File::read(&format!("{name}.json"));
    file.fault(&file.schema, report, name)
}

/// A schema file of docs/schemas.
struct File {
    schema: Value,
}

impl File {
    fn read(name: &str) -> File {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
        let text = std::fs::read_to_string(folder.join(name));
        let text = text.unwrap_or_else(|error| panic!("docs/schemas/{name}: {error}"));
        let schema = serde_json::from_str(&text);
        File {
            schema: schema.unwrap_or_else(|error| panic!("docs/schemas/{name}: {error}")),
        }
    }

    fn fault(&self, schema: &Value, value: &Value, path: &str) -> Option<String> {
        let words = schema
            .as_object()
            .unwrap_or_else(|| panic!("{path}: no schema"));
        words
            .iter()
            .find_map(|(word, meaning)| self.broken(words, word, meaning, value, path))
    }

    /// The violation of one keyword of a schema, if any.
    fn broken(
        &self,
        words: &Map<String, Value>,
        word: &str,
        meaning: &Value,
        value: &Value,
        path: &str,
    ) -> Option<String> {
        match word {
            "type" => {
                (!has_type(meaning, value)).then(|| format!("{path}: {value} is not {meaning}"))
            }
            "enum" => (!list(meaning).contains(value))
                .then(|| format!("{path}: {value} is not one of {meaning}")),
            "required" => {
                let mut names = list(meaning).iter().filter_map(Value::as_str);
                let fields = value.as_object()?;
                let missing = names.find(|name| !fields.contains_key(*name))?;
                Some(format!("{path}: no field {missing}"))
            }
            "properties" => value.as_object()?.iter().find_map(|(name, value)| {
                let path = format!("{path}.{name}");
                match meaning.get(name) {
                    Some(schema) => self.fault(schema, value, &path),
                    None => (!words.contains_key("additionalProperties"))
                        .then(|| format!("{path} is not in the schema")),
                }
            }),
            "additionalProperties" => {
                let known = |name: &str| {
                    words
                        .get("properties")
                        .is_some_and(|all| all.get(name).is_some())
                };
                let fields = value.as_object()?.iter();
                fields
                    .filter(|(name, _)| !known(name) && *meaning != Value::Bool(true))
                    .find_map(|(name, value)| self.fault(meaning, value, &format!("{path}.{name}")))
            }
            "items" => value
                .as_array()?
                .iter()
                .enumerate()
                .find_map(|(number, value)| {
                    self.fault(meaning, value, &format!("{path}[{number}]"))
                }),
            "prefixItems" => value
                .as_array()?
                .iter()
                .zip(list(meaning))
                .enumerate()
                .find_map(|(number, (value, schema))| {
                    self.fault(schema, value, &format!("{path}[{number}]"))
                }),
            "anyOf" => {
                let faults: Option<Vec<String>> = list(meaning)
                    .iter()
                    .map(|schema| self.fault(schema, value, path))
                    .collect();
                faults.map(|faults| faults.join("; "))
            }
            "$ref" => self.referred(meaning.as_str().expect("a reference"), value, path),
            remark if REMARKS.contains(&remark) => None,
            other => panic!("{path}: the schema has the keyword {other}, which is not implemented"),
        }
    }

    /// Checks a value against the schema at `reference`, which is "FILE.json", "#/$defs/NAME" or
    /// both.
    fn referred(&self, reference: &str, value: &Value, path: &str) -> Option<String> {
        let (name, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let other = (!name.is_empty()).then(|| File::read(name));
        let file = other.as_ref().unwrap_or(self);
        let schema = file.schema.pointer(pointer);
        let schema = schema.unwrap_or_else(|| panic!("{path}: {reference} does not exist"));
        file.fault(schema, value, path)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn has_type(kind: &Value, value: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| has_type(kind, value)),
        Value::String(kind) => match kind.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("type {other}"),
        },
        _ => panic!("{kind} is not a type"),
    }
}
