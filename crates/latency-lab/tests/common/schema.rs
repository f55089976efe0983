//! Holds a report against its schema in docs/schemas: the words `type`, `required`, `properties`,
//! `items` and `enum` of JSON Schema, which are all that the schemas use.

use std::path::Path;

use serde_json::Value;

/// Panics with the path of the first thing that does not fit.
pub fn check(name: &str, report: &Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).expect("a schema");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    if let Some(fault) = fault(&schema, report, name) {
        panic!("{fault}");
    }
}

fn fault(schema: &Value, value: &Value, path: &str) -> Option<String> {
    if !has_type(&schema["type"], value) {
        return Some(format!("{path}: {value} is no {}", schema["type"]));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Some(format!("{path}: {value} is none of {words:?}"));
    }
    let names = schema["required"].as_array().into_iter().flatten();
    let missing = names.filter_map(Value::as_str).find(|name| {
        let fields = value.as_object();
        fields.is_some_and(|fields| !fields.contains_key(*name))
    });
    if let Some(missing) = missing {
        return Some(format!("{path}: no field {missing}"));
    }
    let fields = schema["properties"].as_object().into_iter().flatten();
    let wrong = fields
        .filter_map(|(name, schema)| fault(schema, value.get(name)?, &format!("{path}.{name}")));
    let elements = value.as_array().into_iter().flatten();
    let wrong_elements =
        elements.filter_map(|element| fault(schema.get("items")?, element, &format!("{path}[]")));
    wrong.chain(wrong_elements).next()
}

fn has_type(kind: &Value, value: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| has_type(kind, value)),
        Value::String(kind) => match kind.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("type {other}"),
        },
        _ => true,
    }
}
