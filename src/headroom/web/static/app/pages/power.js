// The power pools: how many machines of each are on, what they saved, and which pods are unserved.

import { h, text } from "../dom.js";
import * as format from "../format.js";
import { poolAddress, POOLS, states, statesWords, tile } from "../parts.js";
import { listPage, nameColumn, needsLook, numberColumn, poolTable, stateColumn, sum } from "../pools.js";

export const path = () => "power";
export const title = () => "Power";

export const mount = listPage({
  title: "Power",
  note: "Machines that wake for pending GPU pods, and sleep when they are idle.",
  states: POOLS,
  headline,
  tiles,
  first: {
    title: "No power pools yet",
    note: "A PowerPool names machines that can be switched on and off. Headroom wakes the fewest that hold the pending pods, and lets idle ones sleep.",
    advice: "Save this as pool.yaml, fill in your machines, and apply it. Redfish and Wake-on-LAN work too; the operator calls only addresses listed in its setting allow-egress. docs/power.md explains every field.",
  },
  table,
});

const on = (rows) => rows.reduce((total, row) => total + (row.states?.On ?? 0), 0);

function headline(model, rows) {
  if (model.maySee === false) return "Power pools are cluster-scoped; viewing them needs fleet-wide access.";
  const running = on(rows);
  const said = [`${running} of ${format.count(sum(rows, "machines") ?? 0, "machine")} ${running === 1 ? "is" : "are"} on.`, ...needsLook(rows)];
  const unserved = sum(rows, "unservedPods");
  if (unserved) said.push(`${format.count(unserved, "pod is", "pods are")} unserved.`);
  return said.join(" ");
}

function tiles(rows) {
  const machines = sum(rows, "machines") ?? 0;
  const found = [
    tile("Machines on", format.number(on(rows)), `of ${format.number(machines)}`, machines ? (100 * on(rows)) / machines : 0, "plain"),
    tile("GPUs free", format.number(sum(rows, "gpusFree") ?? 0), `of ${format.number(sum(rows, "gpusOn") ?? 0)} that are on`),
  ];
  const saved = sum(rows, "savedKwh");
  if (saved !== undefined) found.push(tile("Saved", `${format.number(saved)} kWh`, `${format.number(sum(rows, "usedKwh"))} kWh used`));
  const unserved = sum(rows, "unservedPods") ?? 0;
  found.push(tile("Pods unserved", format.number(unserved), unserved ? "the pool's page says why" : "every pod is served"));
  const failed = rows.reduce((total, row) => total + (row.states?.Failed ?? 0), 0);
  if (failed) found.push(tile("Machines failed", format.number(failed), "did not do what they were told"));
  return found;
}

function machinesCell(cell, row) {
  if (!cell.firstChild) cell.append(h("span", { class: "amount" }), states.bar());
  text(cell.firstChild, statesWords(row.states));
  states.set(cell.lastChild, row.states);
}

function freeCell(cell, row) {
  text(cell, row.gpusOn === undefined ? "" : `${format.number(row.gpusFree)} of ${format.number(row.gpusOn)}`);
}

function table(route) {
  const energy = { say: (amount) => `${format.number(amount)} kWh`, optional: true };
  return poolTable(route, POOLS, {
    caption: "power pools",
    columns: [
      nameColumn((row) => poolAddress(row.name)),
      stateColumn(POOLS, (row) => row.machines),
      { key: "machines", title: "Machines", sort: (row) => -(row.states?.On ?? 0), update: machinesCell },
      { key: "free", title: "GPUs free", numeric: true, sort: (row) => Number(row.gpusFree ?? 0), update: freeCell },
      numberColumn("saved", "Saved", "savedKwh", energy),
      numberColumn("used", "Used", "usedKwh", energy),
      numberColumn("waiting", "Pods unserved", "unservedPods", { missing: "0" }),
    ],
    words: () => [],
  });
}
