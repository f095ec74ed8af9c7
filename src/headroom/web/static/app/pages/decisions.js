// The log of decisions: searched as one types, live, each entry with its reason in words.

import { h, show, text } from "../dom.js";
import { Entries, TYPES } from "../entries.js";
import * as format from "../format.js";

const SPANS = { "1h": "the last hour", "24h": "the last 24 hours", "168h": "the last 7 days" };
const TYPING_MS = 250;

export const title = () => "Decisions";

export function path(route) {
  const asked = new URLSearchParams();
  const words = route.query.get("q");
  if (words) asked.set("q", words);
  if (Object.hasOwn(TYPES, route.query.get("type") ?? "")) asked.set("type", route.query.get("type"));
  asked.set("since", route.query.get("since") || "24h");
  asked.set("limit", "200");
  return `decisions?${asked}`;
}

export function mount(main, route) {
  const search = h("input", { type: "search", value: route.query.get("q") ?? "", placeholder: "Search: a budget, a pod, a reason, a word", "aria-label": "Search decisions", spellcheck: "false", autocomplete: "off" });
  const span = h("select", { "aria-label": "How far back" }, Object.entries(SPANS).map(([key, label]) => h("option", { value: key, text: label })));
  span.value = route.query.get("since") in SPANS ? route.query.get("since") : "24h";
  const types = [["", "All decisions"], ...Object.entries(TYPES).map(([key, [label]]) => [key, label])];
  const type = h("select", { "aria-label": "Which decisions" }, types.map(([key, label]) => h("option", { value: key, text: label })));
  type.value = Object.hasOwn(TYPES, route.query.get("type") ?? "") ? route.query.get("type") : "";
  const status = h("p", { class: "quiet", role: "status" });
  const entries = new Entries({ empty: "No decision matches. Try fewer words, another type, or look further back." });
  const older = h("p", { class: "quiet", text: "There are older ones that match; search for something narrower to see them.", hidden: true });
  let typing;
  const ask = () => {
    clearTimeout(typing);
    route.keep({ q: search.value.trim(), since: span.value === "24h" ? "" : span.value, type: type.value }, { follow: true });
  };
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(ask, TYPING_MS);
  });
  span.addEventListener("change", ask);
  type.addEventListener("change", ask);
  const form = h("form", { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); ask(); } }, search, type, span, status);
  main.append(
    h("h1", { tabindex: "-1", text: "Decisions" }),
    h("p", { class: "lead", text: "What Headroom decided, and why. An entry appears when a decision changes, not each time it is confirmed." }),
    h("section", { class: "card", "aria-label": "The log" }, form, entries.node, older),
  );

  return {
    update(model) {
      const shown = entries.draw(model.entries);
      text(status, `${format.count(shown, "decision")}${model.more ? " shown" : ""}${model.q || model.type ? " match" : ""}`);
      show(older, model.more);
    },
    close: () => clearTimeout(typing),
  };
}
