//! What a provider says in answer to a question, in the words of the two APIs: whole and as a stream.

use crate::provider::{Seen, Step, answer, stream};

/// What it always says.
pub const HELLO: &str = "Hello there.";
/// How many tokens that is.
pub const TOKENS: u64 = 7;

/// Answers like a provider: Anthropic's messages, OpenAI's chat completions and responses, and a refusal of models whose
/// name says so.
pub fn reply(seen: &Seen) -> Vec<Step> {
    let body = String::from_utf8_lossy(&seen.body).into_owned();
    let path = seen.target.split('?').next().unwrap_or_default();
    if body.contains("-refused\"") {
        return refusal(path);
    }
    match path {
        path if path.ends_with("/messages") && seen.wants_stream() => {
            stream_of(&message_events(&text_block(HELLO), "end_turn"))
        }
        path if path.ends_with("/messages") => answer(200, &[], &message()),
        path if path.ends_with("/count_tokens") => answer(200, &[], r#"{"input_tokens":10}"#),
        path if path.ends_with("/chat/completions") && seen.wants_stream() => stream_of(&chat_chunks()),
        path if path.ends_with("/chat/completions") => answer(200, &[], &chat()),
        path if path.ends_with("/responses") && seen.wants_stream() => stream_of(&response_events()),
        _ => answer(404, &[], r#"{"error":{"message":"not scripted","type":"invalid_request_error"}}"#),
    }
}

/// Pieces as one event each.
pub fn stream_of(events: &[String]) -> Vec<Step> {
    let pieces: Vec<&str> = events.iter().map(String::as_str).collect();
    stream(&pieces)
}

fn refusal(path: &str) -> Vec<Step> {
    if path.ends_with("/messages") {
        let body = r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-refused"},"request_id":"req_1"}"#;
        return answer(404, &[("request-id", "req_1")], body);
    }
    let body = r#"{"error":{"message":"no such model","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#;
    answer(404, &[], body)
}

fn message() -> String {
    format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4","content":[{{"type":"text","text":"{HELLO}"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":10,"output_tokens":{TOKENS}}}}}"#
    )
}

/// One event of Anthropic's stream.
pub fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// The events of a block of text.
pub fn text_block(text: &str) -> Vec<String> {
    vec![
        event(
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
        event("ping", r#"{"type":"ping"}"#),
        event(
            "content_block_delta",
            &format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#
            ),
        ),
        event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
    ]
}

/// The events of a use of a tool; `input` is JSON.
pub fn tool_block(id: &str, name: &str, input: &str) -> Vec<String> {
    let escaped = input.replace('\\', "\\\\").replace('"', "\\\"");
    vec![
        event(
            "content_block_start",
            &format!(
                r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}}}"#
            ),
        ),
        event(
            "content_block_delta",
            &format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":"{escaped}"}}}}"#
            ),
        ),
        event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
    ]
}

/// A whole message of Anthropic's as events.
pub fn message_events(blocks: &[String], stop: &str) -> Vec<String> {
    let start = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}"#;
    let delta = format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}","stop_sequence":null}},"usage":{{"output_tokens":{TOKENS}}}}}"#
    );
    let mut events = vec![event("message_start", start)];
    events.extend_from_slice(blocks);
    events.push(event("message_delta", &delta));
    events.push(event("message_stop", r#"{"type":"message_stop"}"#));
    events
}

fn chat() -> String {
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-5","choices":[{{"index":0,"message":{{"role":"assistant","content":"{HELLO}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":10,"completion_tokens":{TOKENS},"total_tokens":17}}}}"#
    )
}

fn chat_chunks() -> Vec<String> {
    let chunk = |choices: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-5\",\"choices\":[{choices}],\"usage\":{usage}}}\n\n"
        )
    };
    let said =
        format!(r#"{{"index":0,"delta":{{"role":"assistant","content":"{HELLO}"}},"finish_reason":null}}"#);
    let usage = format!(r#"{{"prompt_tokens":10,"completion_tokens":{TOKENS},"total_tokens":17}}"#);
    vec![
        chunk(&said, "null"),
        chunk(r#"{"index":0,"delta":{},"finish_reason":"stop"}"#, "null"),
        chunk("", &usage),
        "data: [DONE]\n\n".to_owned(),
    ]
}

/// The last part of a response of OpenAI's: what it holds is JSON.
fn response(status: &str, output: &str, usage: &str) -> String {
    format!(
        r#"{{"id":"resp_1","object":"response","created_at":1,"status":"{status}","model":"gpt-5","output":[{output}],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"error":null,"incomplete_details":null,"instructions":null,"metadata":{{}},"temperature":1.0,"top_p":1.0,"usage":{usage}}}"#
    )
}

/// A response of OpenAI's as events, with one item of output.
pub fn response_with(item: &str, deltas: &[(&str, String)]) -> Vec<String> {
    let usage = format!(
        r#"{{"input_tokens":10,"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{TOKENS},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":17}}"#
    );
    let mut events =
        vec![("response.created", format!(r#""response":{}"#, response("in_progress", "", "null")))];
    events.extend(deltas.iter().cloned());
    events.push(("response.output_item.done", format!(r#""output_index":0,"item":{item}"#)));
    events.push(("response.completed", format!(r#""response":{}"#, response("completed", item, &usage))));
    let number = |(index, (name, data)): (usize, (&str, String))| {
        event(name, &format!(r#"{{"type":"{name}","sequence_number":{index},{data}}}"#))
    };
    events.into_iter().enumerate().map(number).collect()
}

fn response_events() -> Vec<String> {
    response_text(HELLO)
}

/// A response that only says something.
pub fn response_text(text: &str) -> Vec<String> {
    let part = format!(r#"{{"type":"output_text","text":"{text}","annotations":[]}}"#);
    let item = |content: &str, status: &str| {
        format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","status":"{status}","content":[{content}]}}"#
        )
    };
    let at = r#""item_id":"msg_1","output_index":0,"content_index":0"#;
    let deltas = [
        ("response.output_item.added", format!(r#""output_index":0,"item":{}"#, item("", "in_progress"))),
        (
            "response.content_part.added",
            format!(r#"{at},"part":{{"type":"output_text","text":"","annotations":[]}}"#),
        ),
        ("response.output_text.delta", format!(r#"{at},"delta":"{text}","logprobs":[]"#)),
        ("response.output_text.done", format!(r#"{at},"text":"{text}","logprobs":[]"#)),
        ("response.content_part.done", format!(r#"{at},"part":{part}"#)),
    ];
    response_with(&item(&part, "completed"), &deltas)
}
