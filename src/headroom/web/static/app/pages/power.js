// The power pools: how many machines of each are on, what they saved, and who waits for one.

import { attribute, fill, h, show, text } from "../dom.js";
import * as format from "../format.js";
import { badge, card, poolAddress, POOLS, setBadge, states, statesWords, Teller, tile, withIds } from "../parts.js";
import { Table } from "../table.js";

export const path = () => "power";
export const title = () => "Power";

const ORDER = { bad: 0, warn: 1, good: 2, idle: 3 };

export function mount(main, route) {
  const lead = h("p", { class: "lead" });
  const tiles = h("dl", { class: "tiles" });
  const table = poolTable(route);
  const pools = card("Pools", { id: "pools", note: "Machines that wake when pods wait for their GPUs, and sleep when nobody uses them." }, table.node);
  const sample = h("code");
  const first = firstSteps(sample);
  main.append(h("h1", { tabindex: "-1", text: "Power" }), lead, first, tiles, pools);
  const told = new Teller((row) => POOLS[row.state]?.[0] ?? row.state);

  return {
    update(model) {
      const rows = withIds(model.pools);
      text(lead, headline(model, rows));
      text(sample, model.example);
      show(first, model.example);
      show(lead, !model.example);
      fill(tiles, rows.length ? tilesOf(rows) : []);
      show(tiles, rows.length);
      table.rows(rows);
      show(pools, rows.length);
      told.hear(rows);
    },
    close() {},
  };
}

/** Adds one number up over all pools; `undefined` where none has it. */
function sum(rows, name) {
  const known = rows.filter((row) => row[name] !== undefined);
  return known.length ? known.reduce((total, row) => total + Number(row[name]), 0) : undefined;
}

function headline(model, rows) {
  if (model.maySee === false) return "Power pools are of no namespace: only who may see the whole fleet sees them.";
  const bad = rows.filter((row) => row.tone === "bad").map((row) => row.id);
  const on = rows.reduce((total, row) => total + (row.states?.On ?? 0), 0);
  const said = [`${on} of ${format.count(sum(rows, "machines") ?? 0, "machine")} ${on === 1 ? "is" : "are"} on.`];
  if (bad.length) said.push(`${format.count(bad.length, "pool needs", "pools need")} a look: ${format.listed(bad)}.`);
  const waits = sum(rows, "unservedPods");
  if (waits) said.push(`For ${format.count(waits, "pod")} no machine is woken.`);
  return said.join(" ");
}

function tilesOf(rows) {
  const all = rows.reduce((total, row) => states.add(total, row.states), {});
  const machines = sum(rows, "machines") ?? 0;
  const found = [
    tile("Machines on", format.number(all.On ?? 0), `of ${format.number(machines)}`, machines ? (100 * (all.On ?? 0)) / machines : 0, "plain"),
    tile("GPUs free", format.number(sum(rows, "gpusFree") ?? 0), `of ${format.number(sum(rows, "gpusOn") ?? 0)} that are on`),
  ];
  const saved = sum(rows, "savedKwh");
  if (saved !== undefined) found.push(tile("Saved", `${format.number(saved)} kWh`, `${format.number(sum(rows, "usedKwh"))} kWh used`));
  const vain = sum(rows, "unservedPods") ?? 0;
  found.push(tile("Pods without a machine", format.number(vain), vain ? "unserved" : "every pod is served"));
  if (all.Failed) found.push(tile("Machines failed", format.number(all.Failed), "did not do what they were told"));
  return found;
}

function firstSteps(sample) {
  return card(
    "No power pools yet",
    { id: "first-steps", note: "A PowerPool names machines that can be switched on and off. Headroom wakes the fewest that hold the pods which wait, and lets idle ones sleep." },
    h("p", { text: "Save this as pool.yaml, write your own machines into it, and apply it. Redfish and Wake-on-LAN do as well as endpoints; the operator only calls addresses that its setting allow-egress lists. docs/power.md explains every field." }),
    h("pre", { tabindex: "0", "aria-label": "A first pool" }, sample),
    h("pre", { tabindex: "0", "aria-label": "The command" }, h("code", { text: "kubectl apply -f pool.yaml" })),
  );
}

// --- the table ---------------------------------------------------------------------------------------------------------

function nameCell(cell, row) {
  if (!cell.firstChild) cell.append(h("a"));
  attribute(cell.firstChild, "href", poolAddress(row.name));
  text(cell.firstChild, row.name);
}

function stateCell(cell, row) {
  if (!cell.firstChild) cell.append(badge());
  const [words, meaning] = POOLS[row.state] ?? [row.state];
  setBadge(cell.firstChild, words, row.tone, row.message || meaning);
}

/** The worst state first, and most machines among their like. */
function urgency(row) {
  return (ORDER[row.tone] ?? 4) * 1e9 - (row.machines ?? 0);
}

function machinesCell(cell, row) {
  if (!cell.firstChild) cell.append(h("span", { class: "amount" }), states.bar());
  text(cell.firstChild, statesWords(row.states));
  states.set(cell.lastChild, row.states);
}

function freeCell(cell, row) {
  text(cell, row.gpusOn === undefined ? "" : `${format.number(row.gpusFree)} of ${format.number(row.gpusOn)}`);
}

function energyCell(cell, amount) {
  text(cell, amount === undefined ? "" : `${format.number(amount)} kWh`);
  attribute(cell, "title", amount);
}

function poolTable(route) {
  const energy = (rows) => rows.some((row) => row.savedKwh !== undefined);
  return new Table({
    caption: "power pools",
    what: "pools",
    columns: [
      { key: "name", title: "Pool", lead: true, sort: (row) => row.id, update: nameCell },
      { key: "state", title: "State", sort: urgency, update: stateCell },
      { key: "machines", title: "Machines", sort: (row) => -(row.states?.On ?? 0), update: machinesCell },
      { key: "free", title: "GPUs free", numeric: true, sort: (row) => Number(row.gpusFree ?? 0), update: freeCell },
      { key: "saved", title: "Saved", numeric: true, shown: energy, sort: (row) => (row.savedKwh === undefined ? undefined : Number(row.savedKwh)), update: (cell, row) => energyCell(cell, row.savedKwh) },
      { key: "used", title: "Used", numeric: true, shown: energy, sort: (row) => (row.usedKwh === undefined ? undefined : Number(row.usedKwh)), update: (cell, row) => energyCell(cell, row.usedKwh) },
      { key: "waiting", title: "Pods without a machine", numeric: true, sort: (row) => row.unservedPods ?? 0, update: (cell, row) => text(cell, format.number(row.unservedPods ?? 0)) },
    ],
    words: (row) => `${row.id} ${row.state} ${POOLS[row.state]?.[0] ?? ""} ${row.message ?? ""}`,
    sort: "state",
    empty: "There is no pool.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
}
