//! As Gitea 1.22 and Forgejo answer: newest first, short pages, labels by number that are passed over in silence.

use serde_json::{Value, json};

use super::wire::{Reply, Request};
use super::world::{TOKEN, World, numbered, time};

const REPOSITORY: &str = "/api/v1/repos/acme/shop";

impl World {
    pub(super) fn answer_as_gitea(&mut self, request: &Request) -> Reply {
        match request.headers.get("authorization") {
            None => return Reply::json(401, &json!({"message": "token is required"})),
            Some(given) if *given != format!("token {TOKEN}") => return Reply::empty(403),
            Some(_) => {}
        }
        let path = request.path().to_owned();
        if let Some(rest) = path.strip_prefix("/api/v1/orgs/acme/labels") {
            return match numbered(rest, "/") {
                Some((id, "")) => label_of(&self.organisation_labels, id),
                _ => self.gitea_labels(request, &self.organisation_labels),
            };
        }
        let Some(rest) = path.strip_prefix(REPOSITORY) else {
            return Reply::json(404, &json!({"message": "not found"}));
        };
        if self.is_archived && request.method != "GET" {
            return Reply::json(423, &json!({"message": "repository is archived"}));
        }
        let (method, number) = (request.method.as_str(), numbered(rest, "/issues/"));
        if let Some((number, _)) = number
            && method != "GET"
            && self.poisoned.contains(&number)
        {
            return Reply::json(500, &json!({"message": "poisoned"}));
        }
        match (method, rest, number) {
            ("GET", "", _) => self.gitea_repository(),
            ("GET", "/issues", _) => self.gitea_list(request),
            ("GET", "/labels", _) => self.gitea_labels(request, &self.labels),
            ("POST", "/labels", _) => self.gitea_new_label(&request.json()),
            (_, _, Some((number, rest))) => self.gitea_issue(method, number, rest, &request.json()),
            ("GET", path, _) => match numbered(path, "/labels/") {
                Some((id, "")) => label_of(&self.labels, id),
                _ => Reply::json(404, &json!({"message": "not found"})),
            },
            ("DELETE", path, _) => match numbered(path, "/issues/comments/") {
                Some((id, "")) if self.delete_comment(id) => Reply::empty(204),
                _ => Reply::json(404, &json!({"message": "comment does not exist"})),
            },
            _ => Reply::empty(405),
        }
    }

    fn gitea_repository(&self) -> Reply {
        let owner = json!({"id": 1, "login": "acme", "username": "acme", "email": "acme@example.com"});
        let mut shown = json!({"id": 1, "name": "shop", "full_name": "acme/shop", "owner": owner,
            "archived": self.is_archived, "permissions": {"admin": false, "push": true, "pull": true}});
        if let Some(is_private) = self.is_private {
            shown["private"] = json!(is_private);
        }
        Reply::json(200, &shown)
    }

    fn gitea_list(&self, request: &Request) -> Reply {
        let mut numbers = self.listed(request);
        match request.query("type").as_deref() {
            Some("issues") => numbers.retain(|number| !self.issues[number].is_pull_request),
            Some("pulls") => numbers.retain(|number| self.issues[number].is_pull_request),
            _ => {}
        }
        // A filter of which no name is known vanishes.
        let wanted = request.query("labels").unwrap_or_default();
        let wanted: Vec<u64> = self
            .labels
            .iter()
            .filter(|(_, name)| wanted.split(',').any(|one| one == name))
            .map(|(id, _)| *id)
            .collect();
        numbers.retain(|number| wanted.iter().all(|id| self.issues[number].labels.contains(id)));
        numbers.reverse();
        let limit = request.number("limit", 30).clamp(1, self.page);
        let page = request.number("page", 1).max(1);
        let shown: Vec<Value> = numbers
            .iter()
            .skip((page - 1) * limit)
            .take(limit)
            .map(|number| self.gitea_shown(*number))
            .collect();
        // Its own idea of where it is, which nobody else can reach.
        let link = format!("<http://gitea.internal:3000{REPOSITORY}/issues?page={}>; rel=\"next\"", page + 1);
        Reply::json(200, &json!(shown)).with("x-total-count", numbers.len()).with("link", link)
    }

    fn gitea_shown(&self, number: u64) -> Value {
        let issue = &self.issues[&number];
        let pull_request = if issue.is_pull_request { json!({"merged": false}) } else { Value::Null };
        json!({
            "id": number + 1_000, "number": number, "title": issue.title, "body": issue.body,
            "url": format!("{}{REPOSITORY}/issues/{number}", self.root),
            "state": if issue.is_open { "open" } else { "closed" }, "labels": self.shown_labels(issue),
            "user": {"id": 5, "login": issue.author, "email": "x@example.com"}, "comments": issue.comments.len(),
            "milestone": issue.milestone.as_ref().map(|title| json!({"id": 1, "title": title})),
            "pull_request": pull_request, "updated_at": time(issue.updated), "created_at": time(number),
            "repository": {"id": 1, "name": "shop", "owner": "acme", "full_name": "acme/shop"},
        })
    }

    fn gitea_labels(&self, request: &Request, labels: &[(u64, String)]) -> Reply {
        let limit = request.number("limit", 30).clamp(1, self.page);
        let page = request.number("page", 1).max(1);
        let shown = labels.iter().skip((page - 1) * limit).take(limit);
        let shown: Vec<Value> = shown.map(|(id, name)| json!({"id": id, "name": name})).collect();
        Reply::json(200, &json!(shown)).with("x-total-count", labels.len())
    }

    /// A second one of the same name is fine.
    fn gitea_new_label(&mut self, body: &Value) -> Reply {
        let id = self.labels.iter().map(|(id, _)| id + 1).max().unwrap_or(1);
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        self.labels.push((id, name.clone()));
        Reply::json(201, &json!({"id": id, "name": name}))
    }

    fn gitea_issue(&mut self, method: &str, number: u64, rest: &str, body: &Value) -> Reply {
        if !self.issues.contains_key(&number) || self.ghosts.contains(&number) {
            // Comments on what is not there are a failure of the server.
            let status = if rest == "/comments" { 500 } else { 404 };
            return Reply::json(status, &json!({"message": "issue does not exist"}));
        }
        match (method, rest) {
            ("GET", "") => Reply::json(200, &self.gitea_shown(number)),
            ("PATCH", "") => {
                self.patch(number, body);
                Reply::json(201, &self.gitea_shown(number))
            }
            ("GET", "/comments") => Reply::json(200, &self.shown_comments(number)),
            ("POST", "/comments") => Reply::json(201, &self.comment(number, body)),
            ("GET", "/labels") => Reply::json(200, &json!(self.shown_labels(&self.issues[&number]))),
            ("POST", "/labels") => self.gitea_add_labels(number, body),
            ("DELETE", path) => match numbered(path, "/labels/") {
                Some((id, "")) => self.gitea_remove_label(number, id),
                _ => Reply::empty(405),
            },
            _ => Reply::empty(405),
        }
    }

    /// By number or name; what is unknown is passed over, and still it is 200.
    fn gitea_add_labels(&mut self, number: u64, body: &Value) -> Reply {
        let wanted: Vec<Value> = body["labels"].as_array().cloned().unwrap_or_default();
        let is_wanted = |(id, name): &&(u64, String)| {
            wanted.iter().any(|one| one.as_u64() == Some(*id) || one.as_str() == Some(name))
        };
        let found: Vec<(u64, String)> = self.all_labels().filter(is_wanted).cloned().collect();
        if !self.is_deaf {
            for (id, name) in found {
                self.replace_scoped(number, &name);
                self.label(number, id);
            }
        }
        Reply::json(200, &json!(self.shown_labels(&self.issues[&number])))
    }

    /// `status/open` and `status/done` replace each other.
    fn replace_scoped(&mut self, number: u64, name: &str) {
        let Some((scope, _)) = name.rsplit_once('/') else { return };
        let same: Vec<u64> = self
            .labels
            .iter()
            .filter(|(_, other)| other.rsplit_once('/').is_some_and(|(theirs, _)| theirs == scope))
            .map(|(id, _)| *id)
            .collect();
        if let Some(issue) = self.issues.get_mut(&number) {
            issue.labels.retain(|id| !same.contains(id));
        }
    }

    fn gitea_remove_label(&mut self, number: u64, id: u64) -> Reply {
        if !self.all_labels().any(|(other, _)| *other == id) {
            return Reply::json(422, &json!({"message": "label does not exist"}));
        }
        let updated = self.tick();
        if let Some(issue) = self.issues.get_mut(&number) {
            issue.labels.retain(|other| *other != id);
            issue.updated = updated;
        }
        Reply::empty(204)
    }
}

fn label_of(labels: &[(u64, String)], id: u64) -> Reply {
    match labels.iter().find(|(other, _)| *other == id) {
        Some((id, name)) => Reply::json(200, &json!({"id": id, "name": name})),
        None => Reply::json(404, &json!({"message": "label does not exist"})),
    }
}
