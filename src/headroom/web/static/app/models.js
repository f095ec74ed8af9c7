// GPUs by model, and which of them the pending pods need: what is free never stands beside what is pending unexplained.

import { fill, h, show } from "./dom.js";
import * as format from "./format.js";
import { card } from "./parts.js";
import { PlainTable } from "./table.js";

const PARTS = { allocated: "Allocated", free: "Free", asleep: "Asleep", booting: "Booting", cordoned: "Cordoned", unreachable: "Unreachable" };
const MEANINGS = {
  allocated: "Reserved by bound pods.",
  free: "On ready nodes, not reserved by any pod.",
  asleep: "On machines that a power pool has put to sleep; they can be woken.",
  booting: "On machines that are being woken.",
  cordoned: "On ready nodes that take no new pods.",
  unreachable: "On nodes that are not ready, and that no power pool has put to sleep.",
};

/** The card; `draw(models, needs)` gives it its content. */
export function modelsCard() {
  const body = h("div");
  const pending = h("ul", { class: "needs" });
  const node = card("GPUs by model", { id: "models", note: "By the node's label for its GPU model; a node without one counts by its instance type." }, pending, body);
  return {
    node,
    draw(models, needs) {
      const rows = Object.entries(models ?? {});
      const used = Object.keys(PARTS).filter((part) => part === "allocated" || part === "free" || rows.some(([, row]) => Number(row[part] ?? 0)));
      const heads = ["Model", ...used.map((part) => ({ title: PARTS[part], figure: true, hint: MEANINGS[part] })), { title: "All", figure: true }, { title: "Largest free on one node", figure: true }, "Share"];
      const table = new PlainTable("GPUs by model", heads);
      table.body.append(...rows.map(([model, row]) => table.row([modelLink(model), ...used.map((part) => format.number(row[part] ?? 0)), format.number(row.gpus), format.number(row.largest), strip(row, used)])));
      fill(body, h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "GPUs by model" }, table.node));
      fill(pending, (needs ?? []).map((need) => h("li", { text: needWords(need, models ?? {}) })));
      show(pending, needs?.length);
      show(node, rows.length);
    },
  };
}

/** The nodes of a model, and who has its GPUs. */
export const modelLink = (model) => h("a", { href: `#/nodes?${new URLSearchParams({ q: model })}`, text: model });

/** The parts of one model as a bar; the numbers beside it say the same. */
function strip(row, used) {
  const node = h("div", { class: "strip thin", "aria-hidden": "true" });
  for (const part of used) {
    if (!Number(row[part] ?? 0)) continue;
    const box = h("span", { class: `box part-${part}`, title: `${PARTS[part]}: ${format.number(row[part])}` });
    box.style.flexGrow = Number(row[part]);
    node.append(box);
  }
  return node;
}

/** "2 pending pods need 8 GPUs of p5.48xlarge on one node; the most that are free on one is 4." */
export function needWords({ pods, gpus, models: wanted }, models) {
  const whose = pods === 1 ? "1 pending pod needs" : `${format.number(pods)} pending pods need`;
  const size = `${format.count(gpus, "GPU")}${pods === 1 ? "" : " each"}`;
  if (!wanted.length) return `${whose} ${size} on a kind of node that is not there: no node meets the node selector, affinity and tolerations.`;
  const all = Object.keys(models ?? {}).length;
  const of = wanted.length >= all && all > 1 ? "of any model" : `of ${format.listed(wanted)}`;
  if (!models) return `${whose} ${size} ${of} on one node.`;
  const largest = Math.max(0, ...wanted.map((model) => Number(models[model]?.largest ?? 0)));
  const most = largest ? `no such node has more than ${format.number(largest)} free` : "no such node has any free";
  const room = largest >= Number(gpus) ? "enough are free; kube-scheduler has another reason" : most;
  return `${whose} ${size} ${of} on one node; ${room}.`;
}

/** What one pod needs, in a few words for a table. */
export function needShort([need] = []) {
  if (!need) return "";
  return `${format.count(need.gpus, "GPU")} of ${need.models.length ? format.listed(need.models, 2) : "a kind of node that is not there"}`;
}

/** How many GPUs are not there to be had, and why, in one line. */
export function sumOf(models, part) {
  return Object.values(models ?? {}).reduce((sum, row) => sum + Number(row[part] ?? 0), 0);
}

export function others(models) {
  const said = ["asleep", "booting", "cordoned", "unreachable"].map((part) => [sumOf(models, part), PARTS[part].toLowerCase()]);
  return said.filter(([count]) => count).map(([count, word]) => `${format.number(count)} ${word}`).join(", ");
}
