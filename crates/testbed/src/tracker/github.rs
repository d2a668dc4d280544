//! As GitHub answers: labels by name, pages by opaque addresses, entity tags, limits.

use serde_json::{Value, json};

use super::wire::{Reply, Request, decoded};
use super::world::{TOKEN, World, numbered, time};

const REPOSITORY: &str = "/repos/acme/shop";

impl World {
    pub(super) fn answer_as_github(&mut self, request: &Request) -> Reply {
        if !request.headers.contains_key("user-agent") {
            return Reply::text(403, "text/html", "Request forbidden by administrative rules.");
        }
        let given = request.headers.get("authorization").map(String::as_str).unwrap_or_default();
        let token = given.split_whitespace().nth(1).unwrap_or_default();
        if token != TOKEN {
            return Reply::json(401, &json!({"message": "Bad credentials"}));
        }
        let reply = self.github_reply(request);
        let tag = format!("\"{:016x}\"", hash(&reply.body));
        let is_same = request.headers.get("if-none-match") == Some(&tag);
        if request.method == "GET" && reply.status == 200 && is_same {
            // These are free.
            return Reply::empty(304).with("etag", tag);
        }
        if let Some((left, seconds)) = &mut self.limit {
            let seconds = *seconds;
            let Some(less) = left.checked_sub(1) else {
                return Reply::json(403, &json!({"message": "API rate limit exceeded"}))
                    .with("x-ratelimit-remaining", 0)
                    .with("retry-after", seconds);
            };
            *left = less;
        }
        if reply.status == 200 && request.method == "GET" { reply.with("etag", tag) } else { reply }
    }

    fn github_reply(&mut self, request: &Request) -> Reply {
        let path = request.path().to_owned();
        let not_found = || Reply::json(404, &json!({"message": "Not Found"}));
        // The address of a next page names the repository by its number.
        if path == "/repositories/1/issues" {
            return self.github_list(request);
        }
        let Some(rest) = path.strip_prefix(REPOSITORY) else { return not_found() };
        let (method, number) = (request.method.as_str(), numbered(rest, "/issues/"));
        if let Some((number, _)) = number
            && method != "GET"
            && self.poisoned.contains(&number)
        {
            return Reply::json(500, &json!({"message": "poisoned"}));
        }
        if self.is_archived && method != "GET" {
            return Reply::json(403, &json!({"message": "Repository was archived so is read-only."}));
        }
        match (method, rest, number) {
            ("GET", "", _) => {
                let mut shown = json!({"id": 1, "name": "shop", "full_name": "acme/shop",
                    "archived": self.is_archived, "url": format!("{}{REPOSITORY}", self.root),
                    "owner": {"login": "acme", "id": 1}});
                if let Some(is_private) = self.is_private {
                    shown["private"] = json!(is_private);
                }
                Reply::json(200, &shown)
            }
            ("GET", "/issues", _) => self.github_list(request),
            (_, _, Some((number, rest))) => {
                let rest = decoded(rest);
                self.github_issue(method, number, &rest, &request.json())
            }
            ("DELETE", path, _) => match numbered(path, "/issues/comments/") {
                Some((id, "")) if self.delete_comment(id) => Reply::empty(204),
                _ => not_found(),
            },
            ("GET", path, _) => match path.strip_prefix("/labels/").map(decoded) {
                Some(name) if self.labels.iter().any(|(_, label)| *label == name) => {
                    Reply::json(200, &json!({"id": 1, "name": name, "color": "ededed", "url": self.root}))
                }
                _ => not_found(),
            },
            _ => not_found(),
        }
    }

    fn github_list(&self, request: &Request) -> Reply {
        let mut numbers = self.listed(request);
        if request.query("sort").as_deref() == Some("updated") {
            numbers.sort_by_key(|number| (self.issues[number].updated, *number));
        }
        if request.query("direction").as_deref() != Some("asc") {
            numbers.reverse();
        }
        let limit = request.number("per_page", 30).clamp(1, 100);
        let skipped = request.number("after", 0) + (request.number("page", 1).max(1) - 1) * limit;
        let shown: Vec<Value> =
            numbers.iter().skip(skipped).take(limit).map(|number| self.github_shown(*number)).collect();
        let reply = Reply::json(200, &json!(shown));
        if skipped + limit >= numbers.len() {
            return reply;
        }
        let query: Vec<String> = ["state", "sort", "direction", "per_page", "since"]
            .iter()
            .filter_map(|name| Some(format!("{name}={}", request.query(name)?)))
            .collect();
        let next = format!(
            "<{}/repositories/1/issues?{}&after={}>; rel=\"next\", <{0}/repositories/1/issues?page=9>; rel=\"last\"",
            self.root,
            query.join("&"),
            skipped + limit
        );
        reply.with("link", next)
    }

    fn github_shown(&self, number: u64) -> Value {
        let issue = &self.issues[&number];
        let url = format!("{}{REPOSITORY}/issues/{number}", self.root);
        let mut shown = json!({
            "id": number + 1_000, "number": number, "title": issue.title, "body": issue.body, "url": url,
            "state": if issue.is_open { "open" } else { "closed" }, "labels": self.shown_labels(issue),
            "updated_at": time(issue.updated), "created_at": time(number), "comments": issue.comments.len(),
            "user": {"login": issue.author, "id": 5},
            "milestone": issue.milestone.as_ref().map(|title| json!({"number": 1, "title": title})),
        });
        if issue.is_pull_request {
            shown["pull_request"] = json!({"url": format!("{}{REPOSITORY}/pulls/{number}", self.root)});
        }
        shown
    }

    fn github_issue(&mut self, method: &str, number: u64, rest: &str, body: &Value) -> Reply {
        if !self.issues.contains_key(&number) || self.ghosts.contains(&number) {
            return Reply::json(404, &json!({"message": "Not Found"}));
        }
        match (method, rest) {
            ("GET", "") => Reply::json(200, &self.github_shown(number)),
            ("PATCH", "") => {
                self.patch(number, body);
                Reply::json(200, &self.github_shown(number))
            }
            ("GET", "/comments") => Reply::json(200, &self.shown_comments(number)),
            ("POST", "/comments") => Reply::json(201, &self.comment(number, body)),
            ("GET", "/labels") => Reply::json(200, &json!(self.shown_labels(&self.issues[&number]))),
            ("POST", "/labels") => self.github_add_labels(number, body),
            ("DELETE", path) => match path.strip_prefix("/labels/").map(str::to_owned) {
                Some(name) => self.github_remove_label(number, &name),
                None => Reply::empty(404),
            },
            _ => Reply::empty(404),
        }
    }

    /// By name; one that is missing is made.
    fn github_add_labels(&mut self, number: u64, body: &Value) -> Reply {
        let wanted = body["labels"].as_array().or_else(|| body.as_array()).cloned().unwrap_or_default();
        let is_deaf = self.is_deaf;
        for name in wanted.iter().filter_map(Value::as_str).filter(|_| !is_deaf) {
            let known = self.labels.iter().find(|(_, label)| label == name).map(|(id, _)| *id);
            let id = known.unwrap_or_else(|| {
                let id = self.labels.iter().map(|(id, _)| id + 1).max().unwrap_or(1);
                self.labels.push((id, name.to_owned()));
                id
            });
            self.label(number, id);
        }
        Reply::json(200, &json!(self.shown_labels(&self.issues[&number])))
    }

    fn github_remove_label(&mut self, number: u64, name: &str) -> Reply {
        if !self.has_label(number, name) {
            return Reply::json(404, &json!({"message": "Label does not exist"}));
        }
        let named: Vec<u64> =
            self.labels.iter().filter(|(_, label)| label == name).map(|(id, _)| *id).collect();
        let updated = self.tick();
        if let Some(issue) = self.issues.get_mut(&number) {
            issue.labels.retain(|id| !named.contains(id));
            issue.updated = updated;
        }
        Reply::json(200, &json!(self.shown_labels(&self.issues[&number])))
    }
}

/// Fowler, Noll and Vo's, 64 bits: enough to tell two pages apart.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
