//! The parameters an action takes: compiled when the manifest is loaded, checked when the action is called.
//!
//! An action's effective schema is an object of the declared parameters plus the reserved ones (`id` on set, update
//! and delete; `limit` on query), with nothing else allowed. Each declared fragment is compiled by itself.
//!
//! The schema language is JSON Schema 2020-12 without references (`$ref`, `$dynamicRef`, `$recursiveRef`): a few
//! hundred bytes of them describe schemas whose check takes for ever or gigabytes. `nullable: true`, which older
//! manifests use, is translated. `format` is not asserted and `default` not applied, as the specification has it.
//!
//! Limits: [`PATTERN_BYTES_MAX`] for each compiled pattern, [`PATTERNS_MAX`] patterns in a manifest, [`PARAMS_MAX`]
//! params in an action, schemas nested to [`NESTING_MAX`]. Patterns run on the linear-time `regex` engine.
//!
//! Invariants: a fragment that cannot be used is reported by [`ParamSchema::compile`], never at call time. Without
//! references a check is bounded by the size of the fragment times that of the value.

use std::collections::BTreeMap;

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use linekeep_engine::Fields;
use serde_json::{Map, Value, json};

use crate::excerpt::excerpt;

/// Bytes one compiled pattern may take.
pub const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Patterns all fragments of a manifest may have together.
pub const PATTERNS_MAX: usize = 64;
/// Params one action may declare.
pub const PARAMS_MAX: usize = 100;
/// How deep schemas may stand in each other. The `unevaluated...` keywords look at each level again.
pub const NESTING_MAX: usize = 16;
/// Keywords that make one schema stand in many places, or in itself.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// What `type` may name.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Characters of a value that a message shows.
const VALUE_CHARS_MAX: usize = 64;
/// Characters of one error in a message.
const ERROR_CHARS_MAX: usize = 160;
/// Characters of all value errors together, after which the rest is counted; the unknown names come on top.
const ERRORS_CHARS_MAX: usize = 320;
/// Nodes of a fragment times nodes of a value up to which errors are collected: the validator builds all of them, one
/// for each pair at worst, before the first can be taken.
const ERRORS_COLLECTED_MAX: usize = 100_000;
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
    params: BTreeMap<String, Param>,
    /// In the order of the manifest, each name once.
    required: Vec<String>,
}

/// One declared parameter.
#[derive(Debug)]
struct Param {
    validator: Validator,
    /// Values in the fragment, its size for an estimate.
    nodes: usize,
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
                Ok(param) => {
                    params.insert(name.clone(), param);
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
            let param = compile_fragment(&fragment).expect("the reserved fragments are valid");
            params.insert(name.to_owned(), param);
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
            let Some(param) = self.params.get(name) else {
                unknown.push(name);
                continue;
            };
            match serde_json::from_str::<Value>(json) {
                // ORDER: the quick check first; errors are collected only where there are some.
                Ok(value) if param.validator.is_valid(&value) => {}
                Ok(value) if param.nodes.saturating_mul(nodes(&value)) > ERRORS_COLLECTED_MAX => {
                    problems.add(&format!("{name}: does not fit its schema"));
                }
                Ok(value) => {
                    for error in param.validator.iter_errors(&value).take(ERRORS_PER_VALUE_MAX) {
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

/// Values in a value, itself among them.
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(nodes).sum::<usize>(),
        Value::Object(members) => members.values().map(nodes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn compile_fragment(fragment: &Value) -> Result<Param, String> {
    let typed = fragment.as_object().is_some_and(|members| members.contains_key("type"));
    if !typed {
        return Err("must be a JSON Schema object with a 'type'".to_owned());
    }
    let mut schema = fragment.clone();
    prepare(&mut schema, &mut Vec::new())?;
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
        .build(&schema)
        .map(|validator| Param { validator, nodes: nodes(&schema) })
        .map_err(|error| {
            let place = path_text("", error.instance_path().as_str());
            let reason = error.to_string();
            let reason = match error.instance().as_ref() {
                Value::String(pattern) if place.ends_with(".pattern") && is_too_large(pattern) => {
                    format!("the pattern is too large: compiled it takes more than {PATTERN_BYTES_MAX} bytes")
                }
                _ => excerpt(&reason, ERROR_CHARS_MAX).into_owned(),
            };
            unusable(place.trim_start_matches('.'), &reason)
        })
}

/// Whether a pattern that was refused is one that a larger limit would have taken.
fn is_too_large(pattern: &str) -> bool {
    let options = |bytes_max| {
        jsonschema::options().offline().with_pattern_options(PatternOptions::regex().size_limit(bytes_max))
    };
    options(PATTERN_BYTES_MAX * 16).build(&json!({"pattern": pattern})).is_ok()
}

fn unusable(place: &str, reason: &str) -> String {
    if place.is_empty() {
        format!("is not a valid JSON Schema: {reason}")
    } else {
        format!("is not a valid JSON Schema: '{}': {reason}", excerpt(place, VALUE_CHARS_MAX))
    }
}

/// What stands under a keyword of a schema.
#[derive(Clone, Copy)]
enum Under {
    /// A schema, or an array of schemas.
    Schemas,
    /// An object of names and schemas.
    NamedSchemas,
    /// Data that may look like a schema and is none.
    Data,
    /// Something that a validator may or may not know: no references in it, and nothing else is asked.
    Unknown,
}

impl Under {
    fn of(keyword: &str) -> Self {
        match keyword {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies" => Self::NamedSchemas,
            "allOf"
            | "anyOf"
            | "oneOf"
            | "prefixItems"
            | "items"
            | "additionalItems"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "contentSchema" => Self::Schemas,
            "enum" | "const" | "default" | "examples" | "required" | "dependentRequired" | "type" => {
                Self::Data
            }
            _ => Self::Unknown,
        }
    }
}

/// The patterns in a fragment: the values of `pattern`, and the names under `patternProperties`.
pub(super) fn patterns_count(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => members
            .iter()
            .map(|(keyword, value)| match (Under::of(keyword), value) {
                (Under::Data, _) => 0,
                (Under::NamedSchemas, Value::Object(schemas)) => {
                    let names = if keyword == "patternProperties" { schemas.len() } else { 0 };
                    names + schemas.values().map(patterns_count).sum::<usize>()
                }
                (Under::NamedSchemas | Under::Schemas | Under::Unknown, _) => {
                    usize::from(keyword == "pattern" && value.is_string()) + patterns_count(value)
                }
            })
            .sum(),
        Value::Array(schemas) => schemas.iter().map(patterns_count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Translates `nullable: true` and refuses references, unknown types and deep nesting, in every place where a schema
/// stands. `place` is the way to this one.
fn prepare(schema: &mut Value, place: &mut Vec<String>) -> Result<(), String> {
    let members = match schema {
        Value::Object(members) => members,
        Value::Array(schemas) => {
            return schemas.iter_mut().try_for_each(|schema| prepare(schema, place));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
    };
    if place.len() > NESTING_MAX {
        return Err(unusable("", &format!("too large: schemas are nested deeper than {NESTING_MAX} levels")));
    }
    refuse_reference(members, place)?;
    if let Some(kind) = members.get("type") {
        check_type(kind).map_err(|reason| unusable(&place.join("."), &reason))?;
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
        place.push(keyword.clone());
        match (Under::of(keyword), value) {
            (Under::Data, _) => {}
            (Under::NamedSchemas, Value::Object(schemas)) => {
                for (name, schema) in schemas {
                    place.pop();
                    place.push(format!("{keyword}.{name}"));
                    prepare(schema, place)?;
                }
            }
            (Under::NamedSchemas | Under::Schemas, value) => prepare(value, place)?,
            (Under::Unknown, value) => refuse_references(value, place)?,
        }
        place.pop();
    }
    Ok(())
}

fn refuse_reference(members: &Map<String, Value>, place: &[String]) -> Result<(), String> {
    match REFERENCES.into_iter().find(|keyword| members.contains_key(*keyword)) {
        Some(keyword) => {
            Err(unusable(&place.join("."), &format!("references are not supported, remove '{keyword}'")))
        }
        None => Ok(()),
    }
}

/// Refuses references at any depth.
fn refuse_references(value: &Value, place: &[String]) -> Result<(), String> {
    match value {
        Value::Object(members) => {
            refuse_reference(members, place)?;
            members.values().try_for_each(|value| refuse_references(value, place))
        }
        Value::Array(values) => values.iter().try_for_each(|value| refuse_references(value, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Refuses what `type` must not be, with a list of what it may be.
fn check_type(kind: &Value) -> Result<(), String> {
    let known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let fits = match kind {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(known),
        kind => known(kind),
    };
    if fits {
        return Ok(());
    }
    let got = kind.to_string();
    Err(format!("'type' must be one of {} (got {})", TYPES.join(", "), excerpt(&got, VALUE_CHARS_MAX)))
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
    fn references_are_refused_wherever_a_schema_stands() {
        for (fragment, place, keyword) in [
            (json!({"type": "string", "$ref": "#"}), "", "$ref"),
            (json!({"type": "string", "$ref": "http://example.org/s"}), "", "$ref"),
            (json!({"type": "string", "$dynamicRef": "#a"}), "", "$dynamicRef"),
            (json!({"type": "string", "$recursiveRef": "#"}), "", "$recursiveRef"),
            (json!({"type": "array", "items": {"$ref": "file:///etc/passwd"}}), "'items': ", "$ref"),
            (json!({"type": "object", "properties": {"a": {"$ref": "#"}}}), "'properties.a': ", "$ref"),
            (json!({"type": "object", "$defs": {"a": {"$ref": "#"}}}), "'$defs.a': ", "$ref"),
            (json!({"type": "object", "anyOf": [{"not": {"$ref": "#"}}]}), "'anyOf.not': ", "$ref"),
            (json!({"type": "object", "dependencies": {"a": {"$ref": "#"}}}), "'dependencies.a': ", "$ref"),
            (json!({"type": "object", "unknown": [[{"$ref": 1}]]}), "'unknown': ", "$ref"),
        ] {
            let reason = format!(
                "param 'p': is not a valid JSON Schema: {place}references are not supported, remove '{keyword}'"
            );
            refused(fragment, &reason);
        }
    }

    #[test]
    fn what_only_looks_like_a_reference_is_data() {
        let params = json!({
            "a": {"type": "object", "enum": [{"$ref": "#"}], "default": {"$ref": "#"}},
            "b": {"type": "object", "properties": {"$ref": {"type": "string"}}},
            "c": {"type": "string", "x-shown-as": {"type": "slider", "minimum": "none"}},
        });
        let schema = schema(params, &[], Reserved::Nothing);
        check(&schema, r##"{"a":{"$ref":"#"},"b":{"$ref":"x"},"c":"x"}"##, "");
        check(&schema, r#"{"b":{"$ref":1}}"#, "b.$ref: 1 is not of type \"string\"");
    }

    #[test]
    fn nesting_is_bounded_and_what_is_allowed_is_checked_quickly() {
        let nested = |levels: usize, keyword: &str| {
            let mut fragment = json!({"type": "object"});
            for _ in 0..levels {
                fragment = json!({"type": "object", "allOf": [fragment.clone()], "anyOf": [fragment]});
                fragment[keyword] = json!(false);
                fragment["anyOf"] = json!([{"type": "object"}]);
            }
            fragment
        };
        let deep = nested(NESTING_MAX + 1, "unevaluatedProperties");
        refused(
            deep,
            "param 'p': is not a valid JSON Schema: too large: schemas are nested deeper than 16 levels",
        );
        let params = json!({"p": nested(NESTING_MAX - 1, "unevaluatedProperties")});
        let schema = schema(params, &[], Reserved::Nothing);
        let started = std::time::Instant::now();
        let value = format!(r#"{{"p":{{"a":{}1{}}}}}"#, r#"{"a":"#.repeat(60), "}".repeat(60));
        assert!(schema.check(&Fields::parse(value.as_bytes()).unwrap()).is_err());
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    #[test]
    fn a_large_value_under_a_large_schema_is_refused_without_a_list_of_errors() {
        let options = vec![json!({"items": {"type": "string"}}); 500];
        let schema = schema(json!({"p": {"type": "array", "anyOf": options}}), &[], Reserved::Nothing);
        let value = |item: &str| format!(r#"{{"p":[{}]}}"#, vec![item; 2_000].join(","));
        check(&schema, &value("\"a\""), "");
        check(&schema, &value("7"), "p: does not fit its schema");
    }

    #[test]
    fn patterns_are_bounded_and_counted() {
        refused(
            json!({"type": "string", "pattern": "[a-z]{4000}"}),
            "param 'p': is not a valid JSON Schema: 'pattern': the pattern is too large: compiled it takes more than \
             65536 bytes",
        );
        for pattern in ["^\\d{4}-\\d{2}-\\d{2}$", "^[^@\\s]+@[^@\\s]+$", "^\\p{L}+$", "^.{1,200}$"] {
            schema(json!({"p": {"type": "string", "pattern": pattern}}), &[], Reserved::Nothing);
        }
        let fragment = json!({
            "type": "object",
            "pattern": "a",
            "enum": [{"pattern": "no"}],
            "properties": {"pattern": {"type": "string", "pattern": "b"}},
            "patternProperties": {"c": {}, "d": {"items": [{"pattern": "e"}]}},
        });
        assert_eq!(patterns_count(&fragment), 5);
    }

    #[test]
    fn an_unknown_type_is_told_which_there_are() {
        let types = "array, boolean, integer, null, number, object, string";
        for (kind, got) in
            [(json!("strin"), "\"strin\""), (json!(["string", 7]), "[\"string\",7]"), (json!([]), "[]")]
        {
            refused(
                json!({ "type": kind }),
                &format!("param 'p': is not a valid JSON Schema: 'type' must be one of {types} (got {got})"),
            );
        }
        refused(
            json!({"type": "array", "items": {"type": "int"}}),
            &format!(
                "param 'p': is not a valid JSON Schema: 'items': 'type' must be one of {types} (got \"int\")"
            ),
        );
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
