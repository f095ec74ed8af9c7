// Who used how much of a window: by job, by user or by pod, as the reader chooses.

import { attribute, fill, h, show, text } from "./dom.js";
import * as format from "./format.js";
import { card, namespaceLink, podLink } from "./parts.js";
import { PlainTable } from "./table.js";

const WAYS = { byJob: "By job", byUser: "By user", byPod: "By pod" };
let chosen = "byJob"; // what a reader likes stays while they walk about

/** The card; `draw(who)` gives it its content. */
export function whoCard(named = "Who uses it") {
  const buttons = Object.entries(WAYS).map(([way, label]) => h("button", { type: "button", "data-way": way, "aria-pressed": "false", text: label }));
  const choice = h("div", { class: "choice", role: "group", "aria-label": "Group usage by" }, buttons);
  const table = new PlainTable(named, ["Name", { title: "GPU-hours", figure: true }, { title: "Share", figure: true }, { title: "Dollars", figure: true }, { title: "Pods", figure: true }]);
  const wide = h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": named }, table.node);
  const nothing = h("p", { class: "empty" });
  const rest = h("p", { class: "quiet" });
  const note = h("p", { class: "quiet" });
  const node = card(named, { id: "who" }, note, choice, wide, nothing, rest);
  let shown;

  const draw = () => {
    const way = shown[chosen] || chosen === "byUser" ? chosen : "byJob";
    for (const button of buttons) attribute(button, "aria-pressed", String(button.dataset.way === way));
    const rows = shown[way] ?? [];
    const hours = format.column(rows.map((row) => row.gpuHours));
    fill(table.body, rows.map((row, number) => table.row(cells(row, way, hours[number], Number(shown.gpuHours)))));
    text(note, `In the last ${format.window(shown.hours)}: ${format.number(shown.gpuHours)} GPU-hours by ${format.count(shown.pods, "pod")}.`);
    text(nothing, way === "byUser" && !shown.userKey ? "Usage by user needs a label: name it in the setting dashboard-user." : "No pod used GPUs in the window.");
    text(rest, shown.others ? `${format.count(shown.others, "pod")} more used ${format.number(shown.othersGpuHours)} GPU-hours.` : "");
    show(rest, shown.others);
    show(wide, rows.length);
    show(nothing, !rows.length);
  };
  choice.addEventListener("click", ({ target }) => {
    if (!target.dataset.way) return;
    chosen = target.dataset.way;
    draw();
  });
  return {
    node,
    draw(who) {
      show(node, who);
      if (!who) return;
      shown = who;
      draw();
    },
  };
}

function cells(row, way, hours, all) {
  const share = format.percent(all ? (100 * Number(row.gpuHours)) / all : 0);
  return [named(row, way), h("span", { title: row.gpuHours, text: hours }), share, row.usd ? format.dollars(row.usd) : "", format.number(row.pods)];
}

function named(row, way) {
  if (row.rest) return h("span", { class: "quiet", text: `${format.number(row.rest)} more` });
  if (row.hidden) return h("span", { class: "quiet", text: "other namespaces" });
  if (way === "byUser") return row.name || h("span", { class: "quiet", text: "no user named" });
  if (way === "byPod") return podLink(`${row.namespace}/${row.name}`);
  return h("span", {}, namespaceLink(row.namespace), `/${row.name}`);
}
