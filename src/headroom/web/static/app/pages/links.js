// The links of one node: who has reserved what of the network card and the virtual switch, and where its capacity is said.

import { fill, h, prose, show, text } from "../dom.js";
import { Entries } from "../entries.js";
import * as format from "../format.js";
import { bars, legend, remarks, STATES, stateWord, updateBars } from "../links.js";
import { badge, card, setBadge, withIds } from "../parts.js";
import { Table } from "../table.js";
import { reservationColumns } from "./bandwidth.js";

export const path = ({ name }) => `bandwidth/${encodeURIComponent(name)}`;
export const title = ({ name }) => name;
export const gone = ({ name }) => `The Bandwidth of ${name} was deleted with its node, or you may no longer see it. The page shows its last state.`;

const FROM = {
  Object: "this Bandwidth",
  Annotation: "an annotation of the node",
  Offer: "an offer of its machine type",
  InstanceType: "its machine type",
  Settings: "the operator's settings",
};

export function mount(main, route) {
  const mark = badge();
  const lead = h("p", { class: "lead" });
  const problems = h("ul", { class: "notice bad" });
  const colours = h("ul", { class: "holders", "aria-label": "Reservations, by namespace" });
  const lines = bars();
  const facts = h("dl", { class: "facts" });
  const table = new Table({
    caption: "pods with bandwidth",
    what: "reservations",
    columns: reservationColumns(),
    words: (row) => [row.id, row.owner, ...remarks(row)].join(" "),
    sort: "-up",
    empty: "No pod that you may see has bandwidth reserved here.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
  const rest = h("p", { class: "quiet" });
  const entries = new Entries({ empty: "Nothing has been decided about it in the last week.", named: false });
  const history = card("Decisions", { id: "history", note: "Of the last week, the newest first." }, entries.node);
  main.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/bandwidth", text: "Bandwidth" }), " / nodes"),
    h("div", { class: "title-row" }, h("h1", { tabindex: "-1", text: title(route) }), mark),
    lead,
    problems,
    card("Links", { id: "bars" }, colours, lines, facts),
    card("Reservations", { id: "reservations", note: "What each pod was bound with, until it ends; later edits change nothing." }, table.node, rest),
    history,
  );

  return {
    update({ node, links, bar, reservations, unlisted, history: past }) {
      setBadge(mark, stateWord(node.state), node.tone, STATES[node.state]?.[1]);
      prose(lead, node.message ?? node.said);
      fill(problems, (node.problems ?? []).map((each) => h("li", { text: each })));
      show(problems, node.problems?.length);
      const row = { ...links, bar };
      legend(colours, [row]);
      updateBars(lines, row);
      fill(facts, factsOf(node).map(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }))));
      table.rows(withIds(reservations));
      text(rest, `and ${format.count(unlisted ?? 0, "pod", "pods")} more that ${unlisted === 1 ? "is" : "are"} not listed here`);
      show(rest, unlisted > 0);
      entries.draw(past);
      show(history, past);
    },
    close() {},
  };
}

function factsOf(node) {
  const found = [];
  if (node.networkFrom) found.push(["Capacity of the network card, from", FROM[node.networkFrom] ?? node.networkFrom]);
  if (node.localFrom) found.push(["Capacity of the virtual switch, from", FROM[node.localFrom] ?? node.localFrom]);
  if (node.hostNetworkPods) found.push(["In the node's own network, nothing reserved", format.count(node.hostNetworkPods, "pod")]);
  return found;
}
