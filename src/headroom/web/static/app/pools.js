// A page that lists the resources of one kind: one line about all of them, a few numbers, and a table with the worst first.

import { attribute, fill, h, show, text } from "./dom.js";
import * as format from "./format.js";
import { badge, card, setBadge, Teller, withIds } from "./parts.js";
import { Table } from "./table.js";

const ORDER = { bad: 0, warn: 1, good: 2, idle: 3 };

/**
 * Makes the `mount` of such a page.
 *
 * `states` says what each state means: a word and a sentence. `headline(model, rows)` and `tiles(rows)` make the line and the numbers; `first`
 * is what somebody without any is shown; `table(route)` makes the table.
 */
export function listPage({ title, note, states, headline, tiles, first, table }) {
  return (main, route) => {
    const lead = h("p", { class: "lead" });
    const numbers = h("dl", { class: "tiles" });
    const listed = table(route);
    const pools = card("Pools", { id: "pools", note }, listed.node);
    const sample = h("code");
    const steps = firstSteps(first, sample);
    main.append(h("h1", { tabindex: "-1", text: title }), lead, steps, numbers, pools);
    const told = new Teller((row) => states[row.state]?.[0] ?? row.state);

    return {
      update(model) {
        const rows = withIds(model.pools);
        text(lead, headline(model, rows));
        text(sample, model.example);
        show(steps, model.example);
        show(lead, !model.example);
        fill(numbers, rows.length ? tiles(rows) : []);
        show(numbers, rows.length);
        listed.rows(rows);
        show(pools, rows.length);
        told.hear(rows);
      },
      close() {},
    };
  };
}

/** Adds one number up over all of them; `undefined` where none has it. */
export function sum(rows, name) {
  const known = rows.filter((row) => row[name] !== undefined);
  return known.length ? known.reduce((total, row) => total + Number(row[name]), 0) : undefined;
}

/** Which of them need somebody, as the sentences of a headline: none where all is well. */
export function needsLook(rows) {
  const bad = rows.filter((row) => row.tone === "bad").map((row) => row.id);
  return bad.length ? [`${format.count(bad.length, "pool needs", "pools need")} a look: ${format.listed(bad)}.`] : [];
}

function firstSteps({ title, note, advice }, sample) {
  return card(
    title,
    { id: "first-steps", note },
    h("p", { text: advice }),
    h("pre", { tabindex: "0", "aria-label": "A first pool" }, sample),
    h("pre", { tabindex: "0", "aria-label": "The command" }, h("code", { text: "kubectl apply -f pool.yaml" })),
  );
}

/** The column of names: a link, and below it what tells one from another. */
export function nameColumn(addressOf, small) {
  const update = (cell, row) => {
    if (!cell.firstChild) cell.append(h("a", { class: "whole" }), ...(small ? [h("small")] : []));
    attribute(cell.firstChild, "href", addressOf(row));
    text(cell.firstChild, row.id);
    if (small) text(cell.lastChild, small(row));
  };
  return { key: "name", title: "Pool", lead: true, sort: (row) => row.id, update };
}

/** The column of states: the worst first, and the largest among their like. */
export function stateColumn(states, size) {
  const update = (cell, row) => {
    if (!cell.firstChild) cell.append(badge());
    const [words, meaning] = states[row.state] ?? [row.state];
    setBadge(cell.firstChild, words, row.tone, row.message || meaning);
  };
  return { key: "state", title: "State", sort: (row) => (ORDER[row.tone] ?? 4) * 1e9 - (size(row) ?? 0), update };
}

/** A column with a number or amount: `shown` by `say`, and left out where no row has it if `optional`. */
export function numberColumn(key, title, name, { say = format.number, missing = "", optional = false } = {}) {
  return {
    key,
    title,
    numeric: true,
    ...(optional ? { shown: (rows) => rows.some((row) => row[name] !== undefined) } : {}),
    sort: (row) => (row[name] === undefined ? undefined : Number(row[name])),
    update(cell, row) {
      text(cell, row[name] === undefined ? missing : say(row[name]));
      attribute(cell, "title", row[name]);
    },
  };
}

/** The table, the state first in the order. */
export function poolTable(route, states, { caption, columns, words }) {
  return new Table({
    caption,
    what: "pools",
    columns,
    words: (row) => [row.id, row.state, states[row.state]?.[0], row.message, ...words(row)].join(" "),
    sort: "state",
    empty: "There is no pool.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
}
