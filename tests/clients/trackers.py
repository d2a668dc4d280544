"""Makes every call of ours on issue 1 with a real client, and prints what it saw as JSON.

trackers.py gitea|github ROOT TOKEN
"""

import json
import sys

kind, root, token = sys.argv[1:]
comment = "said\n\n<!-- rota: test -->"
seen = {}

if kind == "gitea":
    from gitea import Gitea, Issue, NotFoundException, Repository

    client = Gitea(root, token)
    repository = Repository.request(client, "acme", "shop")
    issues = client.requests_get_paginated("/repos/acme/shop/issues", params={"state": "open", "type": "issues"})
    seen["open"] = sorted(issue["number"] for issue in issues)
    labels = client.requests_get("/repos/acme/shop/labels")
    label = next(label for label in labels if label["name"] == "in-progress")
    seen["label"] = client.requests_get(f"/repos/acme/shop/labels/{label['id']}")["name"]
    path = "/repos/acme/shop/issues/1"
    client.requests_post(f"{path}/labels", data={"labels": [label["id"]]})
    issue = Issue.request(client, "acme", "shop", "1")
    seen["title"] = issue.title
    seen["labels_after_adding"] = [label["name"] for label in client.requests_get(path)["labels"]]
    client.requests_delete(f"{path}/labels/{label['id']}")
    seen["labels_after_removing"] = [label["name"] for label in client.requests_get(path)["labels"]]
    client.requests_post(f"{path}/comments", data={"body": comment})
    seen["comments"] = [comment["body"] for comment in client.requests_get(f"{path}/comments")]
    issue.state = Issue.CLOSED
    issue.commit()
    seen["state"] = Issue.request(client, "acme", "shop", "1").state
    try:
        Issue.request(client, "acme", "shop", "9999")
    except NotFoundException:
        seen["missing"] = True
else:
    from github import Auth, Github, UnknownObjectException

    client = Github(
        auth=Auth.Token(token), base_url=root, retry=None, seconds_between_requests=0, seconds_between_writes=0
    )
    repository = client.get_repo("acme/shop")
    issues = repository.get_issues(state="open", sort="created", direction="asc")
    seen["open"] = [issue.number for issue in issues if issue.pull_request is None]
    seen["label"] = repository.get_label("in-progress").name
    issue = repository.get_issue(1)
    seen["title"] = issue.title
    issue.add_to_labels("in-progress")
    seen["labels_after_adding"] = [label.name for label in repository.get_issue(1).labels]
    issue.remove_from_labels("in-progress")
    seen["labels_after_removing"] = [label.name for label in repository.get_issue(1).labels]
    issue.create_comment(comment)
    seen["comments"] = [comment.body for comment in issue.get_comments()]
    issue.edit(state="closed")
    seen["state"] = repository.get_issue(1).state
    try:
        repository.get_issue(9999)
    except UnknownObjectException:
        seen["missing"] = True

print(json.dumps(seen))
