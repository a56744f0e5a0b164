//! The parameters an action takes: compiled when the manifest is loaded, checked when the action is called.
//!
//! An action's effective schema is an object of the declared parameters plus the reserved ones (`id` on set, update
//! and delete; `limit` on query), with nothing else allowed. Each declared fragment is compiled by itself, so that
//! a `$ref` in it means a place in that fragment, and one that leaves it is an error at load: nothing is ever
//! fetched. Patterns run on the linear-time `regex` engine, so no value can make a check slow.
//!
//! The schema language is JSON Schema 2020-12. `nullable: true`, which older manifests use, is translated. `format`
//! is not asserted and `default` not applied, as the specification has it.
//!
//! Invariant: a fragment that cannot be used is reported by [`ParamSchema::compile`], never at call time.

use std::collections::BTreeMap;

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use linekeep_engine::Fields;
use serde_json::{Map, Value, json};

use crate::excerpt::excerpt;

/// Bytes one compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Characters of a value that a message shows.
const VALUE_CHARS_MAX: usize = 64;
/// Characters of one error in a message.
const ERROR_CHARS_MAX: usize = 160;
/// Characters of all value errors together, after which the rest is counted; the unknown names come on top.
const ERRORS_CHARS_MAX: usize = 320;
/// Errors taken from one value.
const ERRORS_PER_VALUE_MAX: usize = 3;

/// The parameters that an operation adds to the declared ones, which therefore must not be declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// None: append and http actions.
    Nothing,
    /// `id`, a required string: set, update and delete.
    Id,
    /// `limit`, an optional integer: query.
    Limit,
}

impl Reserved {
    /// The reserved name, if there is one.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Id => Some("id"),
            Self::Limit => Some("limit"),
        }
    }
}

/// What an action accepts.
#[derive(Debug)]
pub struct ParamSchema {
    params: BTreeMap<String, Validator>,
    /// In the order of the manifest, each name once.
    required: Vec<String>,
}

impl ParamSchema {
    /// Compiles declared fragments and names of required parameters, and adds the reserved parameter.
    ///
    /// # Errors
    /// Every problem found, each a text that names the parameter.
    pub fn compile(
        declared: &Map<String, Value>,
        required: &[String],
        reserved: Reserved,
    ) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut params = BTreeMap::new();
        for (name, fragment) in declared {
            if reserved.name() == Some(name) {
                errors.push(format!(
                    "param '{name}' is added by the operation itself and must not be declared"
                ));
                continue;
            }
            match compile_fragment(fragment) {
                Ok(validator) => {
                    params.insert(name.clone(), validator);
                }
                Err(reason) => errors.push(format!("param '{}': {reason}", excerpt(name, VALUE_CHARS_MAX))),
            }
        }
        let undeclared: Vec<_> = required.iter().filter(|name| !declared.contains_key(*name)).collect();
        if !undeclared.is_empty() {
            let names = undeclared.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
            errors.push(format!(
                "'required' names params that are not declared: {}",
                excerpt(&names, ERROR_CHARS_MAX)
            ));
        }
        if !errors.is_empty() {
            return Err(errors);
        }

        let mut names = Vec::with_capacity(required.len() + 1);
        let (injected, fragment) = match reserved {
            Reserved::Nothing => (None, Value::Null),
            Reserved::Id => (Some("id"), json!({"type": "string", "minLength": 1})),
            Reserved::Limit => (Some("limit"), json!({"type": "integer"})),
        };
        if let Some(name) = injected {
            let validator = compile_fragment(&fragment).expect("the reserved fragments are valid");
            params.insert(name.to_owned(), validator);
            if reserved == Reserved::Id {
                names.push(name.to_owned());
            }
        }
        for name in required {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Ok(Self { params, required: names })
    }

    /// Checks the parameters of one call: the missing first, then the values in the order given, then the unknown.
    ///
    /// # Errors
    /// One bounded text that lists what is wrong: `qty: 0 is less than the minimum of 1; unknown params: a, b`.
    pub fn check(&self, fields: &Fields) -> Result<(), String> {
        let mut problems = Problems::default();
        for name in &self.required {
            if fields.get(name).is_none() {
                problems.add(&format!("'{name}' is required"));
            }
        }
        let mut unknown = Vec::new();
        for (name, json) in fields.iter() {
            let Some(validator) = self.params.get(name) else {
                unknown.push(name);
                continue;
            };
            match serde_json::from_str::<Value>(json) {
                Ok(value) => {
                    for error in validator.iter_errors(&value).take(ERRORS_PER_VALUE_MAX) {
                        problems.add(&describe(name, &error));
                    }
                }
                // The engine has read this text before; what it takes and serde_json does not is a number.
                Err(error) => problems.add(&format!("{name}: {error}")),
            }
        }
        unknown.sort_unstable();
        problems.finish(&unknown)
    }
}

/// Collects error texts within the bounds of a message.
#[derive(Default)]
struct Problems {
    shown: Vec<String>,
    chars: usize,
    hidden: usize,
}

impl Problems {
    fn add(&mut self, text: &str) {
        let text = excerpt(text, ERROR_CHARS_MAX).into_owned();
        if self.shown.contains(&text) {
            return;
        }
        let chars = text.chars().count();
        if self.hidden == 0 && (self.shown.is_empty() || self.chars + chars <= ERRORS_CHARS_MAX) {
            self.chars += chars;
            self.shown.push(text);
        } else {
            self.hidden += 1;
        }
    }

    fn finish(mut self, unknown: &[&str]) -> Result<(), String> {
        if self.hidden > 0 {
            self.shown.push(format!("and {} more", self.hidden));
        }
        if !unknown.is_empty() {
            let names =
                unknown.iter().map(|name| excerpt(name, VALUE_CHARS_MAX)).collect::<Vec<_>>().join(", ");
            self.shown.push(excerpt(&format!("unknown params: {names}"), ERROR_CHARS_MAX).into_owned());
        }
        if self.shown.is_empty() { Ok(()) } else { Err(self.shown.join("; ")) }
    }
}

/// One error in words: where, what value, what was wanted.
fn describe(name: &str, error: &ValidationError<'_>) -> String {
    let value = error.instance().to_string();
    let path = path_text(name, error.instance_path().as_str());
    format!("{path}: {}", error.masked_with(excerpt(&value, VALUE_CHARS_MAX).into_owned()))
}

/// A JSON pointer below a parameter as people write it: `tags[0].name`.
fn path_text(name: &str, pointer: &str) -> String {
    let mut path = excerpt(name, VALUE_CHARS_MAX).into_owned();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push('[');
            path.push_str(part);
            path.push(']');
        } else {
            path.push('.');
            path.push_str(&part.replace("~1", "/").replace("~0", "~"));
        }
    }
    path
}

fn compile_fragment(fragment: &Value) -> Result<Validator, String> {
    let typed = fragment.as_object().is_some_and(|members| members.contains_key("type"));
    if !typed {
        return Err("must be a JSON Schema object with a 'type'".to_owned());
    }
    let mut schema = fragment.clone();
    prepare(&mut schema)?;
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
        .build(&schema)
        .map_err(|error| {
            let place = path_text("", error.instance_path().as_str());
            let place = place.trim_start_matches('.');
            let reason = error.to_string();
            let reason = excerpt(&reason, ERROR_CHARS_MAX);
            if place.is_empty() {
                format!("is not a valid JSON Schema: {reason}")
            } else {
                format!("is not a valid JSON Schema: '{place}': {reason}")
            }
        })
}

/// Translates `nullable: true` and refuses references that leave the fragment, in every place where a schema stands.
/// What only looks like a schema (inside `enum`, `const`, `default`, `examples`) is data and stays.
fn prepare(schema: &mut Value) -> Result<(), String> {
    let Value::Object(members) = schema else { return Ok(()) };
    for keyword in ["$ref", "$dynamicRef"] {
        if let Some(Value::String(target)) = members.get(keyword)
            && !target.starts_with('#')
        {
            let target = excerpt(target, VALUE_CHARS_MAX);
            return Err(format!("'{keyword}' must stay inside the param (start with '#'), got '{target}'"));
        }
    }
    if members.get("nullable") == Some(&Value::Bool(true)) {
        match members.get_mut("type") {
            Some(Value::Array(types)) if !types.contains(&json!("null")) => types.push(json!("null")),
            Some(kind @ Value::String(_)) if *kind != json!("null") => *kind = json!([kind.take(), "null"]),
            _ => {}
        }
        if let Some(Value::Array(options)) = members.get_mut("enum")
            && !options.contains(&Value::Null)
        {
            options.push(Value::Null);
        }
    }
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(schemas),
            ) => schemas.values_mut().try_for_each(prepare)?,
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().try_for_each(prepare)?;
            }
            (
                "items"
                | "additionalProperties"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties"
                | "contentSchema",
                schema,
            ) => prepare(schema)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("not an object: {other}"),
        }
    }

    fn schema(params: Value, required: &[&str], reserved: Reserved) -> ParamSchema {
        let required: Vec<_> = required.iter().map(|&name| name.to_owned()).collect();
        ParamSchema::compile(&map(params), &required, reserved).unwrap()
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better with `json!` by value")]
    fn refused(fragment: Value, expected: &str) {
        let errors =
            ParamSchema::compile(&map(json!({ "p": fragment })), &[], Reserved::Nothing).unwrap_err();
        assert_eq!(errors, [expected]);
    }

    #[track_caller]
    fn check(schema: &ParamSchema, params: &str, expected: &str) {
        let answer = schema.check(&Fields::parse(params.as_bytes()).unwrap());
        assert_eq!(answer.err().unwrap_or_default(), expected, "for {params}");
    }

    #[test]
    fn unusable_fragments_are_found_when_compiled() {
        refused(json!("string"), "param 'p': must be a JSON Schema object with a 'type'");
        refused(json!({"minimum": 1}), "param 'p': must be a JSON Schema object with a 'type'");
        for fragment in [
            json!({"type": "any"}),
            json!({"type": []}),
            json!({"type": "string", "minLength": "a"}),
            json!({"type": "string", "pattern": "["}),
            json!({"type": "string", "pattern": "(?=a)b"}),
            json!({"type": "string", "enum": 5}),
            json!({"type": "array", "items": 3}),
            json!({"type": "string", "$ref": "#/nowhere"}),
            json!({"type": "string", "pattern": "(\\d{1000}){1000}"}),
        ] {
            let errors =
                ParamSchema::compile(&map(json!({ "p": fragment })), &[], Reserved::Nothing).unwrap_err();
            assert!(errors[0].starts_with("param 'p': is not a valid JSON Schema: "), "{errors:?}");
        }
    }

    #[test]
    fn a_reference_that_leaves_the_fragment_is_refused() {
        for target in
            ["http://example.org/s", "file:///etc/passwd", "other.json", "https://json-schema.org/schema"]
        {
            refused(
                json!({"type": "array", "items": {"$ref": target}}),
                &format!("param 'p': '$ref' must stay inside the param (start with '#'), got '{target}'"),
            );
        }
    }

    #[test]
    fn a_reference_inside_the_fragment_works_and_a_loop_ends() {
        let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["v"]});
        let schema = schema(json!({"p": tree, "q": {"type": "string", "$ref": "#"}}), &[], Reserved::Nothing);
        check(&schema, r#"{"p":{"v":1,"next":{"v":2}},"q":"x"}"#, "");
        check(&schema, r#"{"p":{"v":1,"next":{}}}"#, r#"p.next: "v" is a required property"#);
    }

    #[test]
    fn reserved_and_undeclared_names_are_refused() {
        let compile = |params: Value, required: &[&str], reserved| {
            let required: Vec<_> = required.iter().map(|&name| name.to_owned()).collect();
            ParamSchema::compile(&map(params), &required, reserved).map(|_| ()).unwrap_err()
        };
        let declared = json!({"id": {"type": "string"}, "limit": {"type": "integer"}});
        assert_eq!(
            compile(declared.clone(), &[], Reserved::Id),
            ["param 'id' is added by the operation itself and must not be declared"]
        );
        assert_eq!(
            compile(declared.clone(), &[], Reserved::Limit),
            ["param 'limit' is added by the operation itself and must not be declared"]
        );
        assert_eq!(
            compile(json!({}), &["id", "x"], Reserved::Id),
            ["'required' names params that are not declared: 'id', 'x'"]
        );
        assert!(ParamSchema::compile(&map(declared), &[], Reserved::Nothing).is_ok());
    }

    #[test]
    fn missing_then_values_then_unknown() {
        let params = json!({
            "what": {"type": "string"},
            "qty": {"type": "integer", "minimum": 1},
            "shop": {"type": "string", "enum": ["market", "bakery"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}},
        });
        let schema = schema(params, &["what", "qty"], Reserved::Nothing);
        check(&schema, r#"{"what":"milk","qty":2,"tags":["a"]}"#, "");
        check(&schema, r#"{"qty":1.0,"what":"x"}"#, "");
        check(
            &schema,
            r#"{"zeta":1,"shop":"x","qty":0,"alfa":2}"#,
            "'what' is required; shop: \"x\" is not one of \"market\" or \"bakery\"; qty: 0 is less than the minimum of \
             1; unknown params: alfa, zeta",
        );
        check(
            &schema,
            r#"{"what":true,"qty":"1","tags":["abc",7,"abcd"]}"#,
            "what: true is not of type \"string\"; qty: \"1\" is not of type \"integer\"; tags[1]: 7 is not of type \
             \"string\"; tags[2]: \"abcd\" is longer than 3 characters",
        );
    }

    #[test]
    fn the_reserved_parameters_are_checked_too() {
        let update = schema(json!({"done": {"type": "boolean"}}), &["done"], Reserved::Id);
        check(&update, r#"{"id":"a","done":true}"#, "");
        check(&update, "{}", "'id' is required; 'done' is required");
        check(&update, r#"{"id":7,"done":true}"#, "id: 7 is not of type \"string\"");
        check(
            &update,
            r#"{"id":"","done":true,"limit":1}"#,
            "id: \"\" is shorter than 1 character; unknown params: limit",
        );
        let query = schema(json!({}), &[], Reserved::Limit);
        check(&query, r#"{"limit":-1}"#, "");
        check(&query, r#"{"limit":"1"}"#, "limit: \"1\" is not of type \"integer\"");
    }

    #[test]
    fn nullable_means_null_too() {
        let params = json!({
            "a": {"type": "string", "nullable": true, "enum": ["x"]},
            "b": {"type": "object", "properties": {"c": {"type": ["string", "integer"], "nullable": true}}},
            "d": {"type": "string", "nullable": false},
        });
        let schema = schema(params, &[], Reserved::Nothing);
        check(&schema, r#"{"a":null,"b":{"c":null}}"#, "");
        check(&schema, r#"{"a":"x","b":{"c":1}}"#, "");
        check(&schema, r#"{"d":null}"#, "d: null is not of type \"string\"");
    }

    #[test]
    fn a_message_stays_short_and_keeps_the_unknown_names() {
        let schema =
            schema(json!({"a": {"type": "array", "items": {"type": "integer"}}}), &[], Reserved::Nothing);
        let long = "x".repeat(1000);
        let items = vec![format!("\"{long}\""); 5].join(",");
        let params = format!(r#"{{"a":[{items}],"{long}":1,"b":2}}"#);
        let text = schema.check(&Fields::parse(params.as_bytes()).unwrap()).unwrap_err();
        assert!(text.chars().count() < 520, "{} characters", text.chars().count());
        assert!(text.contains("unknown params: b, xxx"), "{text}");
    }

    #[test]
    fn keys_of_the_prototype_are_plain_names() {
        let schema = schema(json!({"__proto__": {"type": "string"}}), &[], Reserved::Nothing);
        check(&schema, r#"{"__proto__":"x"}"#, "");
        check(&schema, r#"{"constructor":"x"}"#, "unknown params: constructor");
    }
}
