// One spot pool: each slot with its machine and node, what is sold out, which pods are unserved, and what was decided.

import { announce, fill, h, prose, show, text, time } from "../dom.js";
import { Entries } from "../entries.js";
import * as format from "../format.js";
import { badge, card, folded, podLink, reasonWords, setBadge, Teller, tile, withIds } from "../parts.js";
import { PlainTable, Table } from "../table.js";
import { POOLS, SLOTS, statesWords } from "./spot.js";

export const path = ({ namespace, name }) => `spot/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
export const title = ({ name }) => name;
export const gone = ({ namespace, name }) => `The spot pool ${namespace}/${name} was deleted, or you may no longer see it. The page shows its last state.`;

const MOST_HISTORY = 25;
const ANSWERS = { True: "yes", False: "no" };
const ORDER = Object.keys(SLOTS);
const BAD = ["JoinFailing"];
const TOLD_ELSEWHERE = ["Ready", "Unserved", "SoldOut", "InterruptionNotice"]; // by the first sentence, by tables, and below
const CAUSES = {
  Surplus: "more machines than needed",
  Idle: "idle",
  Reclaimed: "reclaimed by the cloud",
  NeverJoined: "its node never became ready",
  Failed: "the cloud reports that it failed",
  Deleted: "the pool was deleted",
  Paused: "the pool is paused",
  Unanswered: "one call was refused and another got no answer",
};
const RESTS = { SoldOut: "sold out", PriceTooLow: "the price is above the limit", QuotaReached: "the account has no quota left" };
const MODES = { Demand: "as many as pending pods need" };

export function mount(main, route) {
  const { namespace, name } = route;
  const state = badge();
  const lead = h("p", { class: "lead" });
  const warnings = h("div", { class: "stack", id: "warnings" });
  const tiles = h("dl", { class: "tiles" });
  const table = slotTable(route);
  const slots = card("Machines", { id: "slots", note: "Each slot holds one machine, or the launch of one." }, table.node);
  const unserved = new Rows("Unserved pods", "unserved", "They are pending, and this pool launches no machine for them; this is why.", ["Pod", { title: "Pods like it", figure: true }, "Why"]);
  const sold = new Rows("Resting types and zones", "sold-out", "They could not be had, so they are not tried again before their time.", ["Type", "Zone", "Why", { title: "Times in a row", figure: true }, "Tried again"]);
  const history = new Entries({ empty: "Nothing was decided about this pool in the last 7 days.", named: false });
  const log = h("a", { href: `#/decisions?${new URLSearchParams({ q: `Spotpool/${namespace}/${name}`, since: "168h" })}`, text: "All of them" });
  const facts = h("dl", { class: "facts" });
  main.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/spot", text: "Spot pools" }), ` / ${namespace}`),
    h("div", { class: "title-row" }, h("h1", { tabindex: "-1", text: name }), state),
    lead,
    warnings,
    tiles,
    unserved.node,
    slots,
    sold.node,
    folded("History", { id: "history", note: "Every decision about this pool, newest first, and why.", aside: log }, history.node),
    folded("Settings and conditions", { id: "facts" }, facts),
  );
  const told = new Teller((row) => SLOTS[row.state]?.[0] ?? row.state);
  let before;

  return {
    update(model) {
      const pool = model.pool;
      const rows = withIds(model.slots);
      setBadge(state, POOLS[pool.state]?.[0] ?? pool.state, pool.tone, POOLS[pool.state]?.[1]);
      if (before && before !== pool.state) announce(`${name}: ${POOLS[pool.state]?.[0] ?? pool.state}.`);
      before = pool.state;
      prose(lead, pool.message);
      fill(warnings, noticesOf(pool));
      show(warnings, warnings.children.length);
      fill(tiles, pool.maximum === undefined ? [] : tilesOf(pool));
      show(tiles, pool.maximum !== undefined);
      table.mayListNodes = model.mayListNodes;
      table.rows(rows);
      show(slots, pool.maximum !== undefined);
      unserved.draw((model.unserved ?? []).map((each) => [podLink(each.pod), format.number(each.pods), h("span", { title: each.reason, text: each.message || reasonWords(each.reason) })]));
      sold.draw((model.soldOut ?? []).map((each) => [each.type, each.zone === "*" ? "all zones" : each.zone || "any", h("span", { title: each.reason, text: RESTS[each.reason] ?? reasonWords(each.reason) }), format.number(each.failures ?? 0), each.until ? time(each.until, "ahead") : "soon"]));
      history.draw(model.history, MOST_HISTORY);
      fill(facts, factsOf(pool));
      told.hear(rows);
    },
    close() {},
  };
}

// --- in words ----------------------------------------------------------------------------------------------------------

function noticesOf({ conditions, problems }) {
  const said = (problems ?? []).map((problem) => ["bad", problem]);
  const standing = (conditions ?? []).filter((each) => each.status === "True" && !TOLD_ELSEWHERE.includes(each.type));
  for (const each of standing) said.push([BAD.includes(each.type) ? "bad" : "warn", `${reasonWords(each.type)}: ${each.message}`]);
  return said.map(([tone, sentence]) => {
    const node = h("p", { class: `notice ${tone}` });
    prose(node, sentence);
    return node;
  });
}

function tilesOf(pool) {
  const { states = {}, size = 0, minimum = 0, maximum } = pool;
  const others = statesWords({ ...states, Running: 0 });
  const found = [
    tile("Machines", format.number(size), `of ${format.number(minimum)} to ${format.number(maximum)}${others === "none" ? "" : `; ${others}`}`, maximum ? (100 * size) / maximum : 0, "plain"),
    tile("Bought in the last hour", format.number(pool.purchases ?? 0), pool.settings?.maxPurchasesPerHour ? `of at most ${format.number(pool.settings.maxPurchasesPerHour)}` : "machines"),
  ];
  if (pool.pricePerHour !== undefined) found.push(tile("Cost", `${format.dollars(pool.pricePerHour)} / h`, "where prices are known"));
  if (pool.unservedPods) found.push(tile("Unserved pods", format.number(pool.unservedPods), "the reasons are below"));
  return found;
}

// --- the slots ---------------------------------------------------------------------------------------------------------

function slotTable(route) {
  const table = new Table({
    caption: "machines of the pool",
    what: "slots",
    columns: [
      { key: "slot", title: "Slot", lead: true, sort: (row) => Number(row.id), update: (cell, row) => text(cell, row.id) },
      { key: "state", title: "State", sort: (row) => ORDER.indexOf(row.state), update: stateCell },
      { key: "since", title: "Since", sort: (row) => row.since, update: (cell, row) => fill(cell, row.since ? time(row.since) : null) },
      { key: "machine", title: "Machine", sort: (row) => row.instance, update: machineCell },
      { key: "type", title: "Type", sort: (row) => row.type, update: (cell, row) => fill(cell, named(row.type, row.zone)) },
      { key: "node", title: "Node", shown: (rows) => rows.some((row) => row.node), sort: (row) => row.node, update: (cell, row) => nodeCell(cell, row, table.mayListNodes) },
      { key: "gpus", title: "GPUs", numeric: true, shown: (rows) => rows.some((row) => row.gpus), sort: (row) => Number(row.gpus ?? 0), update: (cell, row) => text(cell, row.gpus === undefined ? "" : `${format.number(row.allocated)} of ${format.number(row.gpus)} allocated`) },
      { key: "price", title: "Cost / h", numeric: true, shown: (rows) => rows.some((row) => row.pricePerHour), sort: (row) => (row.pricePerHour ? Number(row.pricePerHour) : undefined), update: (cell, row) => text(cell, row.pricePerHour ? format.dollars(row.pricePerHour) : "unknown") },
      { key: "why", title: "Remarks", shown: (rows) => rows.some((row) => remarks(row).length), update: remarksCell },
    ],
    words: (row) => [row.id, row.instance, row.node, row.type, row.zone, row.state, SLOTS[row.state]?.[0], CAUSES[row.cause], row.reclaimAt ? "reclaimed" : ""].join(" "),
    sort: "slot",
    empty: "The pool has no machines now.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
  return table;
}

function stateCell(cell, row) {
  if (!cell.firstChild) cell.append(badge());
  const [words, tone, , meaning] = SLOTS[row.state] ?? [row.state, "idle"];
  setBadge(cell.firstChild, words, tone, meaning);
}

/** A name that is not broken, with a few words below it. */
function named(name, below) {
  return h("span", { class: "whole" }, name ?? "", below ? h("small", { text: below }) : null);
}

function machineCell(cell, row) {
  const odd = row.cloudState && row.cloudState !== "RUNNING" ? reasonWords(row.cloudState).toLowerCase().replace("_", " ") : "";
  fill(cell, named(row.instance ?? "not known yet", [odd, row.publicIp].filter(Boolean).join(" · ")));
}

function nodeCell(cell, row, mayListNodes) {
  const isThere = row.nodeState && mayListNodes;
  const name = isThere ? h("a", { href: `#/nodes?${new URLSearchParams({ q: row.node })}`, text: row.node }) : row.node;
  fill(cell, named(name ?? "none yet", !row.node || row.nodeState === "ready" ? "" : (row.nodeState ?? "gone")));
}

/** What is not plain about a machine: when the cloud takes it back, why it ends, since when it is idle. */
function remarks(row) {
  const said = [];
  if (row.reclaimAt) said.push(["The cloud reclaims it ", time(row.reclaimAt, "ahead"), ". "]);
  if (row.cause && !(row.reclaimAt && row.cause === "Reclaimed")) said.push([`Why: ${CAUSES[row.cause] ?? reasonWords(row.cause)}. `]);
  if (row.idleSince) said.push(["Idle for ", time(row.idleSince, "lasting"), ". "]);
  if (row.notFoundSince) said.push(["Unknown to the cloud since ", time(row.notFoundSince, "moment"), "."]);
  return said.flat();
}

function remarksCell(cell, row) {
  const said = remarks(row);
  fill(cell, said.length ? h("span", {}, said) : null);
}

/** A card with a small table, hidden while it has no rows. */
class Rows {
  constructor(heading, id, note, heads) {
    this._table = new PlainTable(heading, heads);
    const wide = h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": `${heading}, table` }, this._table.node);
    this.node = card(heading, { id, note }, wide);
  }

  draw(rows) {
    fill(this._table.body, rows.map((each) => this._table.row(each)));
    show(this.node, rows.length);
  }
}

// --- settings ----------------------------------------------------------------------------------------------------------

function factsOf(pool) {
  const facts = [];
  const fact = (name, value) => value !== undefined && value !== "" && facts.push(h("div", {}, h("dt", { text: name }), h("dd", {}, value)));
  const seconds = (amount) => (amount === undefined ? undefined : format.span(amount * 1000));
  const settings = pool.settings ?? {};
  fact("Cloud", [pool.provider, pool.region].filter(Boolean).join(", "));
  fact("Types", (pool.types ?? []).join(", "));
  fact("Zones", (settings.zones ?? []).join(", "));
  fact("Tried first", { Ordered: "in the order given", LowestPrice: "the cheapest offer" }[settings.allocation]);
  if (pool.maximum !== undefined) fact("Desired", MODES[pool.desired] ?? (pool.desired === undefined ? "launched below the minimum, ended above the maximum" : format.number(pool.desired)));
  fact("Price limit", settings.maxPricePerHour === undefined ? undefined : `${format.dollars(settings.maxPricePerHour)} an hour for a machine`);
  fact("Paid as", { SPOTPAID: "spot", POSTPAID_BY_HOUR: "on demand" }[settings.chargeType]);
  fact("Surge", settings.maxSurge === undefined ? undefined : `${format.count(settings.maxSurge, "machine")} beyond the maximum while one is replaced`);
  if (settings.join === false) fact("Nodes", "its machines join no cluster");
  else fact("Join timeout", seconds(settings.joinTimeoutSeconds));
  fact("Ended after", pool.desired === "Demand" ? `${seconds(settings.idleSeconds)} idle` : undefined);
  fact("Drain timeout", seconds(settings.drainSeconds));
  fact("When the pool is deleted", { Terminate: "its machines are ended", Retain: "its machines stay" }[settings.deletionPolicy]);
  fact("Gateway upstream", settings.gateway);
  fact("Last listed in full", pool.listedAt ? time(pool.listedAt) : undefined);
  for (const each of pool.conditions ?? []) {
    const sentence = h("span");
    prose(sentence, each.message ? `: ${each.message}` : "");
    fact(reasonWords(each.type), h("span", { title: each.reason }, h("b", { text: ANSWERS[each.status] ?? "unknown" }), sentence));
  }
  return facts;
}
