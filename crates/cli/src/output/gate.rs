//! What the gateway let through, as text.

use rota_verbs::gate::{UsageList, UsageSum};

use super::table::table;

/// One line.
pub fn in_words(sum: &UsageSum) -> String {
    let UsageSum { requests, input_tokens, output_tokens, cache_read_tokens, wait_ms, usd, .. } = sum;
    format!(
        "{requests} requests, {input_tokens} tokens in ({cache_read_tokens} cached), {output_tokens} out, waited \
         {}.{} s, ${}",
        wait_ms / 1_000,
        wait_ms % 1_000 / 100,
        usd.rounded()
    )
}

/// The table of `gate usage`, and all of it together.
pub fn usage(list: &UsageList) -> String {
    let cells = |sum: &UsageSum| {
        let waited = format!("{}.{}s", sum.wait_ms / 1_000, sum.wait_ms % 1_000 / 100);
        [
            sum.requests.to_string(),
            sum.input_tokens.to_string(),
            sum.output_tokens.to_string(),
            sum.cache_read_tokens.to_string(),
            waited,
            sum.usd.rounded(),
        ]
    };
    let rows = list.usage.iter().map(|row| {
        let named = [
            row.task.clone().unwrap_or_default(),
            row.upstream.clone(),
            row.model.clone().unwrap_or_default(),
        ];
        named.into_iter().chain(cells(&row.sum)).collect()
    });
    let columns = [
        ("TASK", 20),
        ("UPSTREAM", 9),
        ("MODEL", 20),
        ("REQUESTS", 8),
        ("IN", 9),
        ("OUT", 9),
        ("CACHED", 9),
        ("WAITED", 8),
        ("USD", 0),
    ];
    format!("{}{}\n", table(&columns, rows.collect()), in_words(&list.sum))
}
