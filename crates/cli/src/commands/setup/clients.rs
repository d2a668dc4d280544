//! What `rota setup` writes for each agent. Measured with Claude Code 2.1.325 and Codex 0.166.0: see
//! `docs/guides/agents.md`.

use serde_json::{Value, json};

use super::State;
use super::json_edit::Entry;
use super::section::{Comment, Section};

/// The instructions that every agent reads.
pub const INSTRUCTIONS: &str = include_str!("instructions.md");

/// A variable of the MCP server's environment that tells our registration from one that a person made.
const MARK: &str = "ROTA_SETUP";

/// Whom the files are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Claude,
    Codex,
    AgentsMd,
}

impl Client {
    pub const NAMES: &str = "claude, codex or agents-md";

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Claude, Self::Codex, Self::AgentsMd].into_iter().find(|client| client.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::AgentsMd => "agents-md",
        }
    }

    /// The files, and what each should have. `remind` adds the hook that reminds an agent of a lease it holds.
    pub fn parts(self, remind: bool) -> Vec<Part> {
        let instructions = |file| Part {
            file,
            content: Content::Section(Section { comment: Comment::Markdown, body: INSTRUCTIONS.to_owned() }),
        };
        match self {
            Self::Claude => vec![
                instructions("CLAUDE.md"),
                Part { file: ".mcp.json", content: Content::Entries(vec![mcp_server()]) },
                Part { file: ".claude/settings.json", content: Content::Entries(claude_hooks(remind)) },
            ],
            Self::Codex => vec![
                instructions("AGENTS.md"),
                Part { file: ".codex/config.toml", content: Content::Section(codex_server()) },
                Part { file: ".codex/hooks.json", content: Content::Entries(codex_hooks(remind)) },
            ],
            Self::AgentsMd => vec![instructions("AGENTS.md")],
        }
    }
}

/// What one file should have.
pub struct Part {
    pub file: &'static str,
    pub content: Content,
}

pub enum Content {
    /// Text between two markers.
    Section(Section),
    /// Entries of a JSON file.
    Entries(Vec<Entry>),
}

fn mcp_server() -> Entry {
    Entry {
        path: &["mcpServers"],
        key: Some("rota"),
        value: json!({"command": "rota", "args": ["mcp"], "env": {MARK: "1"}}),
        is_ours: |value| value["env"][MARK].is_string(),
        is_optional: false,
    }
}

fn codex_server() -> Section {
    let body =
        format!("[mcp_servers.rota]\ncommand = \"rota\"\nargs = [\"mcp\"]\nenv = {{ {MARK} = \"1\" }}\n");
    Section { comment: Comment::Toml, body }
}

/// A hook as an element of the array of its event.
fn hook(path: &'static [&'static str], matcher: Option<&str>, command: &str) -> Entry {
    let mut value = json!({"hooks": [{"type": "command", "command": command, "timeout": 10}]});
    if let Some(matcher) = matcher {
        value["matcher"] = matcher.into();
    }
    Entry { path, key: None, value, is_ours: is_our_hook, is_optional: false }
}

/// `rota hook` is a command for hooks that `rota setup` writes, and for nothing else.
fn is_our_hook(value: &Value) -> bool {
    let hooks = value["hooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let command = |hook: &Value| hook["command"].as_str().is_some_and(|text| text.starts_with("rota hook "));
    !hooks.is_empty() && hooks.iter().all(command)
}

fn claude_hooks(remind: bool) -> Vec<Entry> {
    vec![
        // Without a matcher: at the start, and after a resume, a clear and a compaction.
        hook(&["hooks", "SessionStart"], None, "rota hook claude session-start"),
        hook(&["hooks", "SessionEnd"], None, "rota hook claude session-end"),
        hook(&["hooks", "StopFailure"], Some("rate_limit|overloaded"), "rota hook claude stop-failure"),
        Entry { is_optional: !remind, ..hook(&["hooks", "Stop"], None, "rota hook claude stop") },
    ]
}

fn codex_hooks(remind: bool) -> Vec<Entry> {
    vec![
        hook(&["hooks", "SessionStart"], None, "rota hook codex session-start"),
        hook(&["hooks", "SessionEnd"], None, "rota hook codex session-end"),
        Entry { is_optional: !remind, ..hook(&["hooks", "Stop"], None, "rota hook codex stop") },
    ]
}

impl Part {
    /// How the file compares to what it should have.
    pub fn state(&self, content: Option<&[u8]>) -> Result<State, String> {
        let Some(content) = content else { return Ok(State::Missing) };
        match &self.content {
            Content::Section(section) => {
                self.check_rest(section, content)?;
                section.state(content)
            }
            Content::Entries(entries) => {
                let text = utf8(content)?;
                let mut states = Vec::new();
                for entry in entries {
                    let state = entry.state(text)?;
                    if state != State::Missing || !entry.is_optional {
                        states.push(state);
                    }
                }
                Ok(State::of_all(&states))
            }
        }
    }

    /// The file as it should be.
    pub fn add(&self, content: Option<&[u8]>) -> Result<Vec<u8>, String> {
        let entries = match &self.content {
            Content::Section(section) => {
                self.check_rest(section, content.unwrap_or_default())?;
                return section.add(content);
            }
            Content::Entries(entries) => entries,
        };
        let mut text = content.map(utf8).transpose()?.map(str::to_owned);
        for entry in entries {
            let is_there = match &text {
                Some(text) => entry.state(text)? != State::Missing,
                None => false,
            };
            if is_there || !entry.is_optional {
                text = Some(entry.add(text.as_deref())?);
            }
        }
        Ok(text.unwrap_or_default().into_bytes())
    }

    /// The file without anything of ours; `None` where the file should not exist.
    pub fn remove(&self, content: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let entries = match &self.content {
            Content::Section(section) => return section.remove(content),
            Content::Entries(entries) => entries,
        };
        let mut text = utf8(content)?.to_owned();
        for entry in entries.iter().rev() {
            match entry.remove(&text)? {
                Some(rest) => text = rest,
                None => return Ok(None),
            }
        }
        Ok(Some(text.into_bytes()))
    }

    /// What is ours, to be copied by hand.
    pub fn shown(&self) -> String {
        match &self.content {
            Content::Section(section) => section.written(&[], "\n"),
            Content::Entries(_) => self.add(None).map_or_else(|error| error, |bytes| lossy(&bytes)),
        }
    }

    /// A server of our name that a person registered would be a duplicate key, which makes the whole file invalid.
    fn check_rest(&self, section: &Section, content: &[u8]) -> Result<(), String> {
        if !self.file.ends_with(".toml") {
            return Ok(());
        }
        let rest: String = lossy(&section.without(content)?).split([' ', '\t', '"', '\'']).collect();
        let takes_name = |line: &str| {
            let key = line.trim_start_matches('[');
            key.starts_with("mcp_servers.rota]")
                || key.starts_with("mcp_servers.rota.")
                || key.starts_with("mcp_servers=")
        };
        match rest.lines().any(takes_name) {
            true => {
                Err("has mcp_servers.rota, which `rota setup` did not write, or mcp_servers as one value: \
                         change it, then run setup again"
                    .to_owned())
            }
            false => Ok(()),
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn utf8(content: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(content).map_err(|_| "is not valid UTF-8".to_owned())
}
