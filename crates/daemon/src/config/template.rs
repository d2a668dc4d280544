//! The file that `rota init` writes.

use rota_core::shape::{Key, Shape};
use serde_json::Value;

use super::keys::TOP;

const HEAD: &str = "\
# yaml-language-server: $schema=rota.schema.json
#
# rota.yml: what Rota runs, and under which limits. Every line is optional. A setting that is commented out by `#` and
# no space shows its default; one that is indented further is an example. snake_case and kebab-case are both read,
# unknown keys are rejected. `rota loop config ID` prints where each setting of a loop comes from, and `rota config
# schema > rota.schema.json` updates the schema that an editor checks this file by.
";

/// Where the comments of keys begin.
const COMMENTS: usize = 48;

/// The keys of the file with their defaults and documentation, all commented out.
pub fn template() -> String {
    let mut text = HEAD.to_owned();
    for key in TOP.iter().filter(|key| is_shown(key)) {
        text += &format!("\n# {}\n", key.about);
        let indent = if key.default.is_some() { "#" } else { "#     " };
        write(&mut text, key, indent, "");
    }
    text
}

/// Alternative names and rare keys have neither a default nor an example.
fn is_shown(key: &Key) -> bool {
    key.default.is_some() || key.example.is_some() || key.shape.keys().iter().any(is_shown)
}

fn write(text: &mut String, key: &Key, indent: &str, comment: &str) {
    let keys = key.shape.keys();
    let value = key.example.or(key.default.filter(|_| keys.is_empty()));
    let value = value.map_or(String::new(), |json| format!(" {}", flow(&parsed(json))));
    *text += format!("{:COMMENTS$}{comment}", format!("{indent}{}:{value}", key.name)).trim_end();
    text.push('\n');
    if value.is_empty() {
        let mut indent = format!("{indent}  ");
        if let Shape::Each(_, [.., name]) = key.shape {
            *text += &format!("{indent}{name}:\n");
            indent += "  ";
        }
        for key in keys.iter().filter(|key| is_shown(key)) {
            write(text, key, &indent, &format!("  # {}", key.about));
        }
    }
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| unreachable!("{json}: {error}"))
}

/// A value in the flow style of YAML, in quotes only where it needs them.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entry = |(name, value): (&String, &Value)| {
                format!("{}: {}", flow(&name.as_str().into()), flow(value))
            };
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Whether a text means itself without quotes: it begins with a letter, and nothing in it is a mark of YAML.
fn is_plain(text: &str) -> bool {
    let is_mark = |character: char| !character.is_ascii_alphanumeric() && !"_-./*".contains(character);
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && !text.contains(is_mark)
        && !["true", "false", "null", "yes", "no", "on", "off"].contains(&text)
}
