// All that Headroom looks after beside budgets: kinds, whether they are ready, and why not.

import { fill, h, prose, text } from "../dom.js";
import { address, badge, card, setBadge, withIds } from "../parts.js";
import { Table } from "../table.js";

export const path = () => "overview";
export const title = () => "Resources";

const READY = { True: ["Ready", "good"], False: ["Not ready", "bad"], Unknown: ["Not known", "idle"] };
const IDLE = ["Valid, no effects", "idle"]; // ready, and nothing is done for it: not green

export function mount(main, route) {
  const table = new Table({
    caption: "resources",
    what: "resources",
    columns: [
      { key: "name", title: "Name", lead: true, sort: (row) => row.id, update: nameCell },
      { key: "kind", title: "Kind", sort: (row) => row.kind, update: (cell, row) => text(cell, row.kind) },
      { key: "ready", title: "Ready", sort: (row) => row.ready, update: readyCell },
      { key: "message", title: "What that means", update: (cell, row) => prose(cell, row.message ?? row.reason) },
    ],
    words: (row) => `${row.id} ${row.reason ?? ""} ${row.message ?? ""}`,
    sort: "name",
    empty: "None yet. Spot pools, power pools and offers appear here once applied, and Bandwidths with problems; budgets are on the overview.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
  main.append(
    h("h1", { tabindex: "-1", text: "Resources" }),
    h("p", { class: "lead", text: "What Headroom looks after beside budgets." }),
    card("Other resources", { id: "resources" }, table.node),
  );
  return {
    update(model) {
      table.rows(withIds(model.others));
    },
    close() {},
  };
}

function nameCell(cell, row) {
  const name = row.namespace ? `${row.namespace}/${row.name}` : row.name;
  const href = address(row);
  fill(cell, href ? h("a", { href, text: name }) : name);
}

function readyCell(cell, row) {
  if (!cell.firstChild) cell.append(badge());
  const [words, tone] = row.ready === "True" && row.acts === false ? IDLE : READY[row.ready] ?? READY.Unknown;
  setBadge(cell.firstChild, words, tone, row.reason);
}
