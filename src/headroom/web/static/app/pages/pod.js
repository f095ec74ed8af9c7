// One pod: why it is as it is, since when, when it is estimated to start, and what it used.

import { announce, fill, h, prose, show, time } from "../dom.js";
import { Entries } from "../entries.js";
import * as format from "../format.js";
import { needWords } from "../models.js";
import { badge, budgetAddress, card, namespaceLink, outward, podLink, reasonWords, resourceLink, setBadge, tile } from "../parts.js";
import { PlainTable } from "../table.js";

export const path = ({ namespace, name }) => `pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
export const title = ({ namespace, name }) => `${namespace}/${name}`;
export const gone = ({ namespace, name }) => `Pod ${namespace}/${name} is gone, or you may no longer see it. The page shows its last state.`;

const WORDS = { Held: "Queued", NeverFits: "Never starts" };

export function mount(main, route) {
  const { namespace, name } = route;
  const state = badge();
  const lead = h("p", { class: "lead" });
  const needs = h("ul", { class: "needs" });
  const tiles = h("dl", { class: "tiles" });
  const facts = h("dl", { class: "facts" });
  const tools = h("p", { class: "outwards" });
  const details = h("ul", { class: "plain-list" });
  const why = card("In detail", { id: "details" }, details);
  const table = new PlainTable("Other pods of the same owner", ["Pod", { title: "GPUs", figure: true }, "Phase", "Node"]);
  const siblings = card("Other pods of the same owner", { id: "siblings" }, h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "Other pods of the same owner" }, table.node));
  const entries = new Entries({ empty: "No decision of the last 7 days names this pod. Being queued or left pending at creation is no decision of its own." });
  main.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/nodes", text: "Pods" }), " / ", namespaceLink(namespace)),
    h("div", { class: "title-row" }, h("h1", { tabindex: "-1", text: `${namespace}/${name}` }), state),
    lead,
    needs,
    tools,
    tiles,
    h("div", { class: "pair" }, card("This pod", { id: "facts" }, facts), why),
    siblings,
    card("Decisions that name it", { id: "history", note: "Of the last 7 days, newest first." }, entries.node),
  );
  let before;

  return {
    update(model) {
      const { pod } = model;
      const word = WORDS[pod.state] ?? reasonWords(pod.state);
      setBadge(state, word, pod.tone);
      if (before && before !== pod.state) announce(`${namespace}/${name}: ${word}.`);
      before = pod.state;
      prose(lead, pod.sentence);
      const unserved = (model.unserved ?? []).map((each) => h("li", {}, resourceLink(each), ` brings no machine for it: ${each.message}`));
      fill(needs, (model.needs ?? []).map((need) => h("li", { text: needWords(need, model.models) })), model.karpenter ? h("li", { text: model.karpenter }) : null, unserved);
      show(needs, model.needs?.length || model.karpenter || unserved.length);
      fill(tools, outward(model.tools));
      show(tools, model.tools?.length);
      fill(tiles, tilesOf(pod));
      fill(facts, factsOf(pod));
      fill(details, (model.details ?? []).map((each) => sentence(each)));
      show(why, model.details?.length);
      fill(table.body, (model.siblings ?? []).map((each) => table.row([podLink(`${each.namespace}/${each.name}`), format.number(each.gpus), each.phase, nodeLink(each.node, pod.mayListNodes)])));
      show(siblings, model.siblings?.length);
      entries.draw(model.history);
    },
    close() {},
  };
}

function sentence(words) {
  const item = h("li");
  prose(item, words);
  return item;
}

function nodeLink(node, mayListNodes) {
  if (!node) return "";
  return mayListNodes ? h("a", { href: `#/nodes?${new URLSearchParams({ q: node })}`, text: node }) : node;
}

function tilesOf(pod) {
  const found = [];
  if (pod.gpus !== undefined) found.push(tile("GPUs", format.number(pod.gpus), pod.node ? "allocated" : "requested"));
  if (pod.startsAt) found.push(tile("Estimated start", time(pod.startsAt, "ahead"), [time(pod.startsAt, "moment")]));
  else if (pod.started) found.push(tile(pod.ended ? "Ran since" : "Runs for", time(pod.started, pod.ended ? "moment" : "lasting"), pod.ended ? ["ended ", time(pod.ended)] : ["since ", time(pod.started, "moment")]));
  else if (pod.created) found.push(tile("Waiting for", time(pod.created, "lasting"), pod.state === "Held" ? "estimated start not known yet" : ["since ", time(pod.created, "moment")]));
  if (pod.gpuHours !== undefined) found.push(tile("Used", format.number(pod.gpuHours), "GPU-hours"));
  if (pod.usd !== undefined) found.push(tile("Spent", format.dollars(pod.usd), "at the price of each hour"));
  return found;
}

function factsOf(pod) {
  const facts = [];
  const fact = (name, value) => value !== undefined && value !== "" && facts.push(h("div", {}, h("dt", { text: name }), h("dd", {}, value)));
  fact("Namespace", namespaceLink(pod.namespace));
  fact("Owner", pod.owner);
  fact("User", pod.user);
  fact("Budget", pod.budget ? h("a", { href: budgetAddress(...pod.budget.split("/")), text: pod.budget }) : undefined);
  fact("Phase", pod.phase);
  fact("Node", pod.node ? nodeLink(pod.node, pod.mayListNodes) : undefined);
  fact("Created", pod.created ? time(pod.created, "moment") : undefined);
  fact("Started", pod.started ? time(pod.started, "moment") : undefined);
  fact("Declared duration", pod.duration);
  fact("Priority", pod.priority === undefined ? undefined : String(pod.priority));
  return facts;
}
