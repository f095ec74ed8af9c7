// One LeftoverNodePool: why its first offer is first, all offers by price and risk, its rungs, what it saves, what was decided.

import { announce, fill, h, prose, show, text, time } from "../dom.js";
import { Entries } from "../entries.js";
import * as format from "../format.js";
import { badge, card, folded, reasonWords, setBadge, Teller, tile, withIds } from "../parts.js";
import { Scatter } from "../scatter.js";
import { Table } from "../table.js";
import { dollars, POOLS, rungsWords } from "./offers.js";

export const path = ({ name }) => `offers/${encodeURIComponent(name)}`;
export const title = ({ name }) => name;
export const gone = ({ name }) => `The pool ${name} was deleted, or you may no longer see it. The page shows its last state.`;

const MOST_HISTORY = 25;
const ANSWERS = { True: "yes", False: "no" };
const RUNGS = {
  Active: ["Active", "good", "Karpenter may add nodes."],
  Resting: ["Resting", "warn", "A launch failed, so it adds no nodes for a while."],
  Leaving: ["Leaving", "idle", "It adds no nodes, and is deleted once it has none."],
};
const CAUSES = {
  LaunchFailed: "a launch failed",
  NotRanked: "its offers are no longer among the best",
  TemplateChanged: "the spec asks for another template",
  OverQuota: "the budget is over quota",
  Superseded: "it is the single NodePool of the original",
};

export function mount(main, route) {
  const { name } = route;
  const state = badge();
  const lead = h("p", { class: "lead" });
  const warnings = h("div", { class: "stack", id: "warnings" });
  const tiles = h("dl", { class: "tiles" });
  const why = h("ul", { class: "plain-list" });
  const reasons = card("Why this order", { id: "why" }, why);
  const picture = new Scatter("Offers by price and risk");
  const chart = card("Offers by price and risk", { id: "chart", note: "Cheaper is further left, safer is further down. What lies below the line would cost less in the end than the first place." }, picture.node);
  const rungTable = tableOfRungs();
  const rungs = card("Rungs", { id: "rungs", note: "Each is a Karpenter NodePool. Karpenter tries the heaviest first. A rung keeps its place until another would save enough, so a cheaper one may weigh less." }, rungTable.node);
  const table = tableOfOffers(route);
  const passed = h("p", { class: "quiet", id: "passed" });
  const offers = card("Offers", { id: "offers", note: "Every offer that is ranked now, with the price of the machine and what a useful GPU-hour is expected to cost." }, table.node, passed);
  const history = new Entries({ empty: "Nothing was decided about this pool in the last 7 days.", named: false });
  const log = h("a", { href: `#/decisions?${new URLSearchParams({ q: `LeftoverNodePool/${name}`, since: "168h" })}`, text: "All of them" });
  const facts = h("dl", { class: "facts" });
  main.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/offers", text: "Cheapest capacity" })),
    h("div", { class: "title-row" }, h("h1", { tabindex: "-1", text: name }), state),
    lead,
    warnings,
    tiles,
    reasons,
    chart,
    rungs,
    offers,
    folded("History", { id: "history", note: "Every decision about this pool, newest first, and why.", aside: log }, history.node),
    folded("Settings and conditions", { id: "facts" }, facts),
  );
  const told = new Teller((row) => RUNGS[row.state]?.[0] ?? row.state);
  let before;

  return {
    update(model) {
      const { pool } = model;
      const [rungRows, rows] = [withIds(model.rungs), withIds(model.offers)];
      setBadge(state, POOLS[pool.state]?.[0] ?? pool.state, pool.tone, POOLS[pool.state]?.[1]);
      if (before && before !== pool.state) announce(`${name}: ${POOLS[pool.state]?.[0] ?? pool.state}.`);
      before = pool.state;
      prose(lead, pool.message);
      fill(warnings, noticesOf(pool));
      show(warnings, warnings.children.length);
      fill(tiles, pool.region ? tilesOf(pool) : []);
      show(tiles, pool.region);
      fill(why, (model.why ?? []).map(sentence));
      show(reasons, model.why?.length);
      picture.draw(drawing(rows, pool));
      show(chart, rows.length);
      rungTable.rows(rungRows);
      show(rungs, rungRows.length);
      table.rows(rows);
      text(passed, leftOut(model, rows));
      show(passed, passed.textContent);
      show(offers, rows.length);
      history.draw(model.history, MOST_HISTORY);
      fill(facts, factsOf(pool));
      told.hear(rungRows);
    },
    close() {
      picture.close();
    },
  };
}

// --- in words ----------------------------------------------------------------------------------------------------------

function sentence(words) {
  const node = h("li");
  prose(node, words);
  return node;
}

function noticesOf({ problems, feedProblem, conditions }) {
  const said = (problems ?? []).map((problem) => ["bad", problem]);
  const ready = (conditions ?? []).find((each) => each.type === "Ready");
  if (ready?.status === "False" && !said.length) said.push(["bad", `${reasonWords(ready.reason)}: ${ready.message}`]);
  if (feedProblem) said.push(["warn", `Parts of the cloud cannot be read now: ${feedProblem}`]);
  return said.map(([tone, words]) => {
    const node = h("p", { class: `notice ${tone}` });
    prose(node, words);
    return node;
  });
}

function tilesOf(pool) {
  const found = [];
  const price = pool.pricePerHour === undefined ? "no price is known" : `${dollars(pool.pricePerHour)} an hour for the machine`;
  found.push(tile("Cost of a GPU-hour", pool.costPerGpuHour === undefined ? "unknown" : dollars(pool.costPerGpuHour), price));
  found.push(tile("Nodes", format.number(pool.nodes ?? 0), `rungs: ${rungsWords(pool.rungs)}`));
  if (pool.savedUsd !== undefined) found.push(tile("Saved so far", format.dollars(pool.savedUsd), `${dollars(pool.savedUsdPerHour ?? 0)} an hour now`));
  const most = pool.settings?.maxSwitchesPerDay;
  found.push(tile("Switches", format.number(pool.switches ?? 0), most ? `${format.number((pool.switchedAt ?? []).length)} of at most ${format.number(most)} in the last day` : ""));
  return found;
}

function leftOut({ offersInAll, passedOver }, rows) {
  const said = (passedOver ?? []).map((each) => each.words);
  const more = (offersInAll ?? 0) - rows.length;
  return [said.length ? `Passed over: ${said.join("; ")}.` : "", more > 0 ? `${format.number(more)} more are ranked below these.` : ""].filter(Boolean).join(" ");
}

// --- the picture -------------------------------------------------------------------------------------------------------

const riskOf = (row) => (Number(row.costPerGpuHour) / Number(row.pricePerGpuHour) - 1) * 100;
const whereOf = (row) => [row.type, row.zone ? `in ${row.zone}` : "", row.capacityType === "on-demand" ? "on demand" : ""].filter(Boolean).join(" ");

function lookOf(row) {
  if (row.first) return "first";
  if (!row.rung) return "other";
  return row.rungState === "Active" ? "kept" : "resting";
}

function drawing(rows, pool) {
  const points = rows.map((row) => ({
    id: row.id,
    x: Number(row.pricePerGpuHour),
    y: Math.max(0, riskOf(row)),
    shape: row.capacityType === "on-demand" ? "square" : "circle",
    look: lookOf(row),
    label: row.first || row.runnerUp ? row.type : "",
    words: `${whereOf(row)}: ${dollars(row.pricePerGpuHour)} a GPU-hour, risk adds ${format.number(Math.max(0, riskOf(row)).toFixed(1))}%, ${dollars(row.costPerGpuHour)} expected${row.first ? ", first" : ""}.`,
  }));
  const first = rows.find((row) => row.first);
  return { points, cost: first ? Number(first.costPerGpuHour) : undefined, summary: `${format.count(rows.length, "offer")}.${pool.first ? ` First is ${pool.first}.` : ""}` };
}

// --- tables ------------------------------------------------------------------------------------------------------------

const amount = (row, name) => (row[name] === undefined ? undefined : Number(row[name]));
const money = (name) => (cell, row) => text(cell, row[name] === undefined ? "unknown" : dollars(row[name]));

function tableOfRungs() {
  return new Table({
    caption: "rungs of the ladder",
    what: "rungs",
    filter: false,
    columns: [
      { key: "name", title: "NodePool", lead: true, sort: (row) => row.id, update: (cell, row) => text(cell, row.id) },
      { key: "state", title: "State", sort: (row) => Object.keys(RUNGS).indexOf(row.state), update: rungState },
      { key: "weight", title: "Weight", numeric: true, sort: (row) => row.weight ?? 0, update: (cell, row) => text(cell, row.weight ?? "") },
      { key: "types", title: "Types", sort: (row) => (row.types ?? []).join(), update: (cell, row) => fill(cell, named((row.types ?? []).join(", "), [(row.zones ?? []).join(", ") || "any zone", row.capacityType].filter(Boolean).join(" · "))) },
      { key: "price", title: "Price / h", numeric: true, sort: (row) => amount(row, "pricePerHour"), update: money("pricePerHour") },
      { key: "cost", title: "Cost / GPU-h", numeric: true, sort: (row) => amount(row, "costPerGpuHour"), update: money("costPerGpuHour") },
      { key: "nodes", title: "Nodes", numeric: true, sort: (row) => row.nodes ?? 0, update: (cell, row) => text(cell, format.number(row.nodes ?? 0)) },
      { key: "why", title: "Remarks", update: remarksCell },
    ],
    words: (row) => row.id,
    sort: "-weight",
    empty: "There is no NodePool yet.",
  });
}

function named(words, below) {
  return h("span", {}, words, below ? h("small", { text: below }) : null);
}

function rungState(cell, row) {
  if (!cell.firstChild) cell.append(badge());
  const [words, tone, meaning] = RUNGS[row.state] ?? [row.state, "idle"];
  setBadge(cell.firstChild, words, tone, meaning);
}

function remarksCell(cell, row) {
  const said = [];
  if (row.cause) said.push(`Why: ${CAUSES[row.cause] ?? reasonWords(row.cause)}. `);
  if (row.until) said.push("Tried again ", time(row.until, "ahead"), ". ");
  if (row.interruptionsPerHour !== undefined) said.push(`${format.count(Number(row.interruptionsPerHour) * 1000, "interruption")} in 1,000 h, ${format.number(Number(row.failedLaunches ?? 0) * 100)}% of launches fail.`);
  fill(cell, said.length ? h("span", {}, said) : null);
}

function tableOfOffers(route) {
  return new Table({
    caption: "ranked offers",
    what: "offers",
    columns: [
      { key: "offer", title: "Offer", lead: true, sort: (row) => row.id, update: (cell, row) => fill(cell, named(row.type, [row.zone, row.capacityType].filter(Boolean).join(" · "))) },
      { key: "place", title: "Place", numeric: true, sort: (row) => row.place, update: (cell, row) => text(cell, format.number(row.place)) },
      { key: "gpus", title: "GPUs", numeric: true, sort: (row) => amount(row, "gpus"), update: (cell, row) => text(cell, format.number(row.gpus)) },
      { key: "price", title: "Price / h", numeric: true, sort: (row) => amount(row, "pricePerHour"), update: money("pricePerHour") },
      { key: "risk", title: "Risk adds", numeric: true, sort: riskOf, update: (cell, row) => text(cell, `${format.number(Math.max(0, riskOf(row)).toFixed(1))}%`) },
      { key: "cost", title: "Cost / GPU-h", numeric: true, sort: (row) => amount(row, "costPerGpuHour"), update: money("costPerGpuHour") },
      { key: "score", title: "Score", numeric: true, shown: (rows) => rows.some((row) => row.score !== undefined), sort: (row) => row.score, update: (cell, row) => text(cell, row.score ?? "unknown") },
      { key: "rung", title: "Rung", sort: (row) => row.rung, update: (cell, row) => text(cell, row.first ? "first place" : row.rung ? (RUNGS[row.rungState]?.[0] ?? "") : row.runnerUp ? "runner-up" : "") },
    ],
    words: (row) => [row.id, row.zone, row.capacityType, row.rung, row.first ? "first" : "", row.runnerUp ? "runner-up" : ""].join(" "),
    sort: "place",
    empty: "No offer can be ranked now.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
}

// --- settings ----------------------------------------------------------------------------------------------------------

function factsOf(pool) {
  const facts = [];
  const fact = (name, value) => value !== undefined && value !== "" && facts.push(h("div", {}, h("dt", { text: name }), h("dd", {}, value)));
  const settings = pool.settings ?? {};
  fact("Cloud", [pool.region, pool.capacityType].filter(Boolean).join(", "));
  fact("Families", settings.families && (settings.families.join(", ") || "any with GPUs"));
  fact("Ranked by", { CostAndRisk: "the expected cost of a useful GPU-hour", CheapestAboveScore: "the price of the machine, with a score that is good enough" }[settings.strategy]);
  fact("A switch needs", settings.switchThreshold && `${settings.switchThreshold} for ${settings.switchAfter}, and ${settings.minDwell} in the first place`);
  fact("The first place since", pool.chosenSince ? time(pool.chosenSince) : undefined);
  fact("Weights", settings.weights?.join(" to "));
  fact("Limits", settings.limits && (Object.entries(settings.limits).map(([name, most]) => `${most} ${name}`).join(", ") || "1,000 GPUs"));
  fact("Budget", settings.budget && `${settings.budget.namespace}/${settings.budget.name}`);
  fact("On-demand fallback", settings.fallback === undefined ? undefined : settings.fallback ? "the last rung" : "no");
  fact("When the template changes", { Keep: "running nodes stay", Replace: "running nodes are replaced" }[settings.rollout]);
  fact("When the pool is deleted", { Retain: "its NodePools stay", Delete: "its NodePools are deleted" }[settings.deletionPolicy]);
  fact("Node class", pool.nodeClass);
  fact("Prices read", pool.feedAt ? time(pool.feedAt) : pool.syncedAt ? time(pool.syncedAt) : undefined);
  fact("Saved since", pool.savedSince ? time(pool.savedSince, "moment") : undefined);
  for (const each of pool.conditions ?? []) {
    const words = h("span");
    prose(words, each.message ? `: ${each.message}` : "");
    fact(reasonWords(each.type), h("span", { title: each.reason }, h("b", { text: ANSWERS[each.status] ?? "unknown" }), words));
  }
  return facts;
}
