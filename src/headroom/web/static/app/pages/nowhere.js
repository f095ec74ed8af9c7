// An address that shows nothing: says what is not there, and leads to what is. Its frame is that of the overview, so it is live.

import { fill, h, show } from "../dom.js";
import { address } from "../parts.js";

const MOST_NEAR = 3;

export const path = () => "overview";
export const title = () => "Not found";

export function mount(main, route) {
  const { wanted, what, link, names: namesIn } = sought(route);
  const heading = wanted ? `There is no ${what} ${wanted}, or you may not see it` : "There is no such page";
  const near = h("p", { hidden: true });
  main.append(h("h1", { tabindex: "-1", text: heading }), h("p", {}, "Go to the ", h("a", { href: "#/", text: "overview" }), "."), near);
  let lacked = false;

  return {
    update(model) {
      const names = namesIn(model);
      if (lacked && names.includes(wanted)) return route.again(); // it was made while somebody looked
      lacked = !names.includes(wanted);
      const found = wanted ? nearest(wanted, names) : [];
      fill(near, found.length ? ["Did you mean ", ...found.flatMap((name, number) => [number ? ", " : "", h("a", { href: link(name), text: name })]), "?"] : []);
      show(near, found.length);
    },
    close() {},
  };
}

/** What the address names: a resource of some kind, or nothing that could be there. */
function sought({ kind, noun, namespace, name }) {
  if (!name) return { wanted: "", names: () => [] };
  const key = (each) => (each.namespace ? `${each.namespace}/${each.name}` : each.name);
  const link = (wanted) => {
    const [own, ...space] = wanted.split("/").reverse();
    return address({ kind, namespace: space[0], name: own });
  };
  // The overview has budgets apart, and tells no kind of them.
  const all = (model) => Object.values(kind === "GPUWorkloadBudget" ? (model.budgets ?? {}) : (model.others ?? {}));
  return { wanted: key({ namespace, name }), what: noun, link, names: (model) => all(model).filter((each) => (each.kind ?? kind) === kind).map(key) };
}

/** The names that a reader may have meant: few changes away, or with the same last part. */
export function nearest(wanted, names) {
  const own = wanted.split("/").at(-1);
  return names
    .map((name) => [Math.min(changes(wanted, name), changes(own, name.split("/").at(-1)) + 1), name])
    .filter(([apart]) => apart <= Math.max(2, own.length / 2))
    .sort(([a, one], [b, other]) => a - b || (one < other ? -1 : 1))
    .slice(0, MOST_NEAR)
    .map(([, name]) => name);
}

/** How many letters must be put in, left out or replaced to make one word of the other. */
function changes(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, number) => number);
  for (let i = 1; i <= one.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= other.length; j += 1) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[other.length];
}
