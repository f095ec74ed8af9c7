// One power pool: what each of its machines is doing and did in the last hours, which pods are unserved, and what was decided.

import * as clock from "../clock.js";
import { attribute, announce, fill, h, prose, show, text, time } from "../dom.js";
import { Entries } from "../entries.js";
import * as format from "../format.js";
import { badge, card, folded, MACHINES, podLink, POOLS, reasonWords, setBadge, statesWords, Teller, tile, withIds } from "../parts.js";
import { HOURS, Past } from "../past.js";
import { PlainTable, Table } from "../table.js";

export const path = ({ name }) => `power/${encodeURIComponent(name)}`;
export const title = ({ name }) => name;
export const gone = ({ name }) => `The power pool ${name} was deleted, or you may no longer see it. The page shows its last state.`;

const MOST_HISTORY = 25;
const ANSWERS = { True: "yes", False: "no" };
const ORDER = ["Failed", "Unknown", "Booting", "Draining", "Sleeping", "On", "Off"];
const BAD = ["MachinesFailed", "Conflict"];
const TOLD_ELSEWHERE = ["Ready", "Unserved"]; // by the first sentence, and by a table of its own
const CONDITIONS = { SharedWithKarpenter: "Shared with Karpenter", Unserved: "Pods unserved", Braked: "Held back" };
const TOLD = { wake: "wake", sleep: "sleep" };
const DRAINS = { Never: "any pod except those of DaemonSets keeps a machine on", NonGpuPods: "pods without GPUs are evicted if their owner recreates them" };
const PREFERS = { FewestGPUs: "as few GPUs as possible", FewestWatts: "as few watts as possible" };

export function mount(main, route) {
  const { name } = route;
  const state = badge();
  const lead = h("p", { class: "lead" });
  const warnings = h("div", { class: "stack", id: "warnings" });
  const tiles = h("dl", { class: "tiles" });
  const past = new Past();
  const table = machineTable(route, past);
  const machines = card("Machines", { id: "machines", note: "What each is doing, and what it did in the last hours." }, past.legend, table.node);
  const unserved = new Unserved();
  const history = new Entries({ empty: "Nothing was decided about this pool in the last 7 days.", named: false });
  const log = h("a", { href: `#/decisions?${new URLSearchParams({ q: `PowerPool/${name}`, since: "168h" })}`, text: "All of them" });
  const facts = h("dl", { class: "facts" });
  main.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/power", text: "Power" }), " / pools"),
    h("div", { class: "title-row" }, h("h1", { tabindex: "-1", text: name }), state),
    lead,
    warnings,
    tiles,
    unserved.node,
    machines,
    folded("History", { id: "history", note: "What this pool did, newest first, and why.", aside: log }, history.node),
    folded("Settings and conditions", { id: "facts" }, facts),
  );
  const told = new Teller((row) => MACHINES[row.state]?.[0] ?? row.state);
  let before;

  return {
    update(model) {
      const pool = model.pool;
      const rows = withIds(model.machines);
      setBadge(state, POOLS[pool.state]?.[0] ?? pool.state, pool.tone, POOLS[pool.state]?.[1]);
      if (before && before !== pool.state) announce(`${name}: ${POOLS[pool.state]?.[0] ?? pool.state}.`);
      before = pool.state;
      prose(lead, pool.message);
      fill(warnings, noticesOf(pool));
      show(warnings, warnings.children.length);
      fill(tiles, tilesOf(pool));
      show(tiles, pool.machines);
      past.move(table.node, clock.now());
      table.mayListNodes = model.mayListNodes;
      table.rows(rows);
      show(machines, rows.length);
      unserved.draw(model.unserved ?? []);
      history.draw(model.history, MOST_HISTORY);
      fill(facts, factsOf(pool, pool.message));
      told.hear(rows);
    },
    close() {},
  };
}

// --- in words ----------------------------------------------------------------------------------------------------------

function noticesOf({ conditions, problems }) {
  const wrong = (problems ?? []).map((problem) => ["bad", problem]);
  const holding = (conditions ?? []).filter((each) => each.status === "True" && !TOLD_ELSEWHERE.includes(each.type));
  const said = holding.map((each) => [BAD.includes(each.type) ? "bad" : "warn", `${CONDITIONS[each.type] ?? reasonWords(each.type)}: ${each.message}`]);
  return [...wrong, ...said].map(([tone, sentence]) => {
    const node = h("p", { class: `notice ${tone}` });
    prose(node, sentence);
    return node;
  });
}

function tilesOf(pool) {
  const { states = {}, machines = 0 } = pool;
  const others = statesWords({ ...states, On: 0 });
  const found = [
    tile("Machines on", format.number(states.On ?? 0), `of ${format.number(machines)}${others ? `; ${others}` : ""}`, machines ? (100 * (states.On ?? 0)) / machines : 0, "plain"),
    tile("GPUs free", format.number(pool.gpusFree ?? "0"), `of ${format.number(pool.gpusOn ?? "0")} that are on; ${format.number(pool.gpus ?? "0")} in all`),
  ];
  if (pool.savedKwh !== undefined) {
    found.push(
      tile("Saved", `${format.number(pool.savedKwh)} kWh`, "while machines were off"),
      tile("Used", `${format.number(pool.usedKwh)} kWh`, "estimated from the configured wattage"),
    );
  }
  if (pool.unservedPods) found.push(tile("Pods unserved", format.number(pool.unservedPods), "the reasons are below"));
  return found;
}

// --- the machines ------------------------------------------------------------------------------------------------------

/** Names with numbers in them sort as people count: w2 before w10. */
function natural(name) {
  return name.replace(/\d+/g, (digits) => digits.padStart(12, "0"));
}

function machineTable(route, past) {
  const table = new Table({
    caption: "machines of the pool",
    what: "machines",
    columns: [
      { key: "name", title: "Machine", lead: true, sort: (row) => natural(row.id), update: (cell, row) => nameCell(cell, row, table.mayListNodes) },
      { key: "state", title: "State", sort: (row) => ORDER.indexOf(row.state), update: stateCell },
      { key: "since", title: "Since", sort: (row) => row.since, update: (cell, row) => fill(cell, row.since ? time(row.since) : null) },
      { key: "gpus", title: "GPUs", numeric: true, sort: (row) => Number(row.gpus), update: gpuCell },
      { key: "idle", title: "Idle for", numeric: true, sort: (row) => (row.idleSince ? -Date.parse(row.idleSince) : undefined), update: (cell, row) => fill(cell, row.idleSince ? time(row.idleSince, "lasting") : null) },
      { key: "told", title: "Last command", sort: (row) => row.toldAt, update: toldCell },
      { key: "past", title: `The last ${HOURS} hours`, update: (cell, row) => past.draw(cell, row) },
      { key: "why", title: "Remarks", shown: (rows) => rows.some((row) => remarks(row).length), update: remarksCell },
    ],
    words: (row) => [row.id, row.state, MACHINES[row.state]?.[0], row.switch, row.reason, row.node, row.protected ? "protected" : ""].join(" "),
    sort: "name",
    empty: "The pool has no machines.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
  return table;
}

function nameCell(cell, row, mayListNodes) {
  const there = row.node && mayListNodes;
  const name = there ? h("a", { href: `#/nodes?${new URLSearchParams({ q: row.id })}`, text: row.id }) : row.id;
  const said = [row.switch, row.node === "cordoned" ? "node cordoned" : row.node ? "" : "no node", row.protected ? "protected" : ""];
  fill(cell, name, h("small", { text: said.filter(Boolean).join(" · ") }));
}

function stateCell(cell, row) {
  if (!cell.firstChild) cell.append(badge());
  const [words, tone, meaning] = MACHINES[row.state] ?? [row.state, "idle"];
  setBadge(cell.firstChild, words, tone, meaning);
}

function gpuCell(cell, row) {
  text(cell, row.held === undefined ? format.number(row.gpus) : `${format.number(row.held)} of ${format.number(row.gpus)} allocated`);
}

function toldCell(cell, row) {
  fill(cell, row.toldAt ? h("span", {}, `${TOLD[row.told] ?? row.told} `, time(row.toldAt)) : null);
}

/** What is not plain about a machine: why it is so, how often it failed, and when the command is sent again. */
function remarks(row) {
  const said = [];
  if (row.reason) said.push(row.reason);
  if (row.failures) said.push(`${said.length ? " " : ""}Failed ${row.failures === 1 ? "once" : `${row.failures} times`} in a row.`);
  if (row.retryAfter) said.push(" No command is sent again before ", time(row.retryAfter, "moment"), ".");
  return said;
}

function remarksCell(cell, row) {
  const said = remarks(row);
  fill(cell, said.length ? h("span", {}, said) : null);
}

// --- unserved pods ---------------------------------------------------------------------------------------------------------

class Unserved {
  constructor() {
    this._table = new PlainTable("Unserved pods", ["Pod", { title: "Pods like it", figure: true }, "Why"]);
    const wide = h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "These pods" }, this._table.node);
    this.node = card("Unserved pods", { id: "unserved", note: "Pending pods for which this pool wakes no machine, and why." }, wide);
  }

  draw(rows) {
    fill(this._table.body, rows.map((each) => this._table.row([podLink(each.pod), format.number(each.pods), h("span", { title: each.reason, text: each.message || reasonWords(each.reason) })])));
    show(this.node, rows.length);
  }
}

// --- settings ----------------------------------------------------------------------------------------------------------

function factsOf(pool, said) {
  const facts = [];
  const fact = (name, value) => value !== undefined && value !== "" && facts.push(h("div", {}, h("dt", { text: name }), h("dd", {}, value)));
  const seconds = (amount) => (amount === undefined ? undefined : format.span(amount * 1000));
  const policy = pool.policy ?? {};
  fact("Sleeps after", policy.idleSeconds === undefined ? undefined : `${seconds(policy.idleSeconds)} idle`);
  fact("Boot timeout", seconds(policy.bootTimeoutSeconds));
  fact("Always on", policy.minOn === undefined ? undefined : format.count(policy.minOn, "machine"));
  fact("Kept on", (policy.keepOn ?? []).join("; "));
  fact("On for at least", policy.minOnSeconds ? seconds(policy.minOnSeconds) : undefined);
  fact("Off for at least", policy.minOffSeconds ? seconds(policy.minOffSeconds) : undefined);
  fact("Warm spares", policy.warmPercent ? `${policy.warmPercent}% of the machines beyond the recent peak` : undefined);
  fact("At a time", limits(policy));
  fact("Switched at most", policy.togglesPerHour === undefined ? undefined : `${policy.togglesPerHour} times an hour each`);
  fact("Wakes", PREFERS[policy.prefer]);
  fact("Before sleep", DRAINS[policy.drain]);
  fact("GPU resource", pool.gpuResourceName);
  fact("Energy up to", pool.energyAsOf ? time(pool.energyAsOf, "moment") : undefined);
  for (const each of pool.trials ?? []) fact(each.inVain ? "Tried, no help so far" : "Woken on trial", h("span", {}, `${each.machine} `, time(each.at)));
  for (const each of pool.conditions ?? []) {
    const sentence = h("span");
    prose(sentence, each.message && !said?.includes(each.message) ? `: ${each.message}` : ""); // not what the page begins with
    fact(CONDITIONS[each.type] ?? reasonWords(each.type), h("span", { title: each.reason }, h("b", { text: ANSWERS[each.status] ?? "not known" }), sentence));
  }
  return facts;
}

function limits({ maxConcurrentWakes, maxConcurrentSleeps }) {
  const wakes = maxConcurrentWakes === undefined ? "any number wakes" : `${maxConcurrentWakes} wake`;
  const sleeps = maxConcurrentSleeps === undefined ? "a fifth goes to sleep" : `${maxConcurrentSleeps} go to sleep`;
  return `${wakes}, ${sleeps}`;
}
