// Decisions, newest first: days as headings, and those that took something from somebody stand out.

import { attribute, fill, h, keyed, prose, show, text, time } from "./dom.js";
import * as clock from "./clock.js";
import * as format from "./format.js";
import { podLink, reasonWords, resourceLink } from "./parts.js";

/** What a decision is about, by its weight: a word, how it looks. */
export const TYPES = {
  stops: ["Evictions and suspensions", "bad"],
  failures: ["Failures", "bad"],
  queue: ["Queued and released", "warn"],
  machines: ["Machines", ""],
  other: ["Everything else", ""],
};

/** Of the queue, what lets pods go: no reason for a warning. */
const RELIEFS = /^(Releas|Resum|HoldEnds|WithinBudget|StepLeft)/;

export class Entries {
  constructor({ empty, named = true }) {
    this._named = named;
    this._list = h("ol", { class: "entries" });
    this._empty = h("p", { class: "empty" }, empty);
    this._count = h("p", { class: "quiet", role: "status", hidden: true });
    this.node = h("div", {}, this._count, this._list, this._empty);
  }

  /** Shows the newest `most` of them, and says so where there are more: `all`, or as many as were given. */
  draw(entries, most = Infinity, all = Object.keys(entries ?? {}).length) {
    const ids = Object.keys(entries ?? {}).sort((a, b) => (a.length - b.length || (a < b ? -1 : 1)) * -1);
    const rows = ids.slice(0, most).map((id) => entries[id]);
    const names = new Map(rows.map((row, number) => [row, ids[number]]));
    keyed(this._list, this._withDays(rows), (row) => row.day ?? names.get(row), (row) => (row.day ? heading(row) : this._make()), (node, row) => row.day || this._update(node, row));
    text(this._count, `The newest ${format.number(rows.length)} of ${format.number(all)}.`);
    show(this._count, rows.length > 0 && all > rows.length);
    show(this._list, rows.length > 0);
    show(this._empty, rows.length === 0);
    return rows.length;
  }

  /** A heading before the first of each day. */
  _withDays(rows) {
    const found = [];
    let last;
    for (const row of rows) {
      const day = format.day(Date.parse(row.at), clock.now());
      if (day !== last) found.push(dayNamed(day));
      last = day;
      found.push(row);
    }
    return found;
  }

  _make() {
    return h("li", { class: "entry" }, h("p", { class: "entry-head" }), h("p", { class: "entry-text" }));
  }

  _update(node, entry) {
    const [head, sentence] = node.children;
    const tone = RELIEFS.test(entry.reason) && entry.type === "queue" ? "good" : TYPES[entry.type]?.[1] ?? "";
    attribute(node, "data-tone", tone || undefined);
    const reason = h("span", { class: tone ? "badge" : "reason", "data-tone": tone || undefined, title: entry.reason, text: reasonWords(entry.reason) });
    fill(head, time(entry.at), " ", this._named ? [resourceLink(entry), " "] : null, reason);
    prose(sentence, entry.message);
    const open = node.querySelector("details")?.open;
    node.querySelector("details")?.remove();
    if (!entry.actions?.length) return;
    const more = (entry.count ?? entry.actions.length) - entry.actions.length;
    const items = entry.actions.map((action) => h("li", {}, h("code", {}, actionWords(action))));
    if (more > 0) items.push(h("li", { class: "quiet", text: `and ${more} more` }));
    const total = entry.count ?? entry.actions.length;
    node.append(h("details", { open }, h("summary", { text: format.count(total, "action") }), h("ul", {}, items)));
  }
}

/** "EvictPod team-a/train": a pod that something was done to leads to its page. */
function actionWords(action) {
  const [done, target = ""] = action.split(" ");
  return done.endsWith("Pod") && target.includes("/") ? [`${done} `, podLink(target)] : action;
}

const days = new Map();

/** The same object for the same day, so that its heading stays. */
function dayNamed(day) {
  if (!days.has(day)) days.set(day, { day });
  return days.get(day);
}

function heading({ day }) {
  return h("li", { class: "day" }, h("h3", { text: day }));
}
