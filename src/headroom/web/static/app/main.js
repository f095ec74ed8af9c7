// Which page is shown, the frame around it, and whether what it shows is still true.

import * as clock from "./clock.js";
import { announce, attribute, fill, h, show, text } from "./dom.js";
import * as format from "./format.js";
import { Live } from "./store.js";
import { PAGES } from "./pages.js";
import * as nowhere from "./pages/nowhere.js";
import { outward } from "./parts.js";

const BANNER_MS = 1500; // A stream that comes back at once is no news.
// All at once and early: changing the page then waits for nothing.
const SCRIPTS = new Map(await Promise.all(PAGES.map(async ({ script }) => [script, await import(`./pages/${script}.js`)])));
const at = (id) => document.getElementById(id);

let current = null;
let product = "Headroom";
const places = new Map();

// --- the route ---------------------------------------------------------------------------------------------------------

/** Reads `#/budgets/NS/NAME?q=...` and the like. */
function parse(hash) {
  const [address, asked = ""] = hash.replace(/^#?\/?/, "").split("?");
  const [first, ...rest] = address.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const route = { hash, query: new URLSearchParams(asked), nav: first };
  const parts = [first || PAGES[0].path, ...rest];
  for (const { path, script, kind, noun } of PAGES) {
    const names = matched(path.split("/"), parts);
    if (names) return { ...route, ...names, kind, noun, page: SCRIPTS.get(script), nav: linked(parts[0]) ? parts[0] : PAGES[0].path };
  }
  return { ...route, page: nowhere };
}

/** The names in an address that a page's path asks for; nothing if it is not of that path. */
function matched(path, parts) {
  if (path.length !== parts.length) return undefined;
  const names = {};
  for (const [number, each] of path.entries()) {
    if (each.startsWith("{") && parts[number]) names[each.slice(1, -1)] = parts[number];
    else if (each !== parts[number]) return undefined;
  }
  return names;
}

const linked = (page) => [...document.querySelectorAll("nav a")].some((link) => link.dataset.page === page);

/** Puts what the reader typed or chose into the address, so that it can be kept, sent and come back to. */
function keep(route, values, { follow = false } = {}) {
  for (const [name, value] of Object.entries(values)) {
    if (value) route.query.set(name, value);
    else route.query.delete(name);
  }
  const address = location.hash.split("?")[0] || "#/";
  const asked = String(route.query);
  history.replaceState(history.state, "", asked ? `${address}?${asked}` : address);
  route.hash = location.hash;
  if (follow && current?.route === route) subscribe(current);
}

function go() {
  const route = parse(location.hash);
  const back = Boolean(history.state?.seen);
  history.replaceState({ seen: true }, "");
  if (current) {
    places.set(current.route.hash, window.scrollY);
    current.live?.close();
    current.view?.close();
  }
  const isFirst = !current;
  const main = at("main");
  main.replaceChildren();
  current = { route, view: null, live: null, scroll: back ? places.get(route.hash) : 0 };
  for (const link of document.querySelectorAll("nav a")) attribute(link, "aria-current", link.dataset.page === route.nav ? "page" : undefined);
  start(main, route);
  if (!isFirst) main.querySelector("h1")?.focus({ preventScroll: true });
  window.scrollTo(0, current.scroll ?? 0);
}

/** What was asked for is not there and was not shown before: says so, until it is made. */
function missing(mine) {
  mine.live.close();
  mine.view.close();
  at("main").replaceChildren();
  start(at("main"), Object.assign(mine.route, { page: nowhere }));
  at("main").querySelector("h1").focus({ preventScroll: true });
}

function start(main, route) {
  route.keep = (values, options) => keep(route, values, options);
  route.again = go;
  document.title = `${route.page.title(route)} · ${product}`;
  const page = h("div", { class: "page", "data-loading": true });
  main.append(page);
  current.view = route.page.mount(page, route);
  current.page = page;
  subscribe(current);
}

function subscribe(mine) {
  mine.live?.close();
  mine.live = new Live(mine.route.page.path(mine.route), (model) => draw(mine, model), (standing) => stands(mine, standing));
}

function draw(mine, model) {
  if (mine !== current) return;
  clock.set(model.at, model.speed);
  mine.view.update(model);
  frame(model);
  clock.show(document);
  if (mine.page.hasAttribute("data-loading")) {
    mine.page.removeAttribute("data-loading");
    if (mine.scroll) window.scrollTo(0, mine.scroll);
  }
}

// --- the frame ---------------------------------------------------------------------------------------------------------

function frame(model) {
  const named = [model.clusterName, model.title].filter(Boolean).join(" · ");
  if (named && named !== product) {
    document.title = document.title.replace(` · ${product}`, ` · ${named}`);
    product = named;
  }
  text(at("product"), model.title ?? "Headroom");
  text(at("cluster"), model.clusterName ?? "");
  fill(at("outward"), outward(model.outward));
  text(at("speed"), model.speed ? `${format.number(model.speed)}× real time` : "");
  fill(at("clock"), h("time", { datetime: model.at, "data-form": "clock" }));
  const viewer = model.viewer?.name ? `Seen as ${model.viewer.name}${model.viewer.everything ? "" : `: ${format.listed(model.viewer.namespaces ?? [])}`}` : "";
  text(at("about"), [model.cluster && `Cluster ${model.cluster}`, model.version && `Headroom ${model.version}`, viewer].filter(Boolean).join(" · "));
  notices(model.operator ?? {});
}

/** What everybody must know about the operator itself. */
function notices({ leading, stopped, complete, problems }) {
  const said = [];
  if (stopped) said.push(["bad", "All effects are stopped. Headroom keeps counting, but queues, stops and changes nothing until 'headroom resume'."]);
  if (complete === false) said.push(["warn", "The view of the cluster is not complete yet, so nothing is decided and numbers may be too low."]);
  for (const problem of problems ?? []) said.push(["warn", problem]);
  if (leading === false) said.push(["idle", "Another replica leads and acts; this one only watches."]);
  fill(at("notices"), said.map(([tone, sentence]) => h("p", { class: `notice ${tone}`, text: sentence })));
}

// --- the connection ----------------------------------------------------------------------------------------------------

const WORDS = { live: "Live", waiting: "Connecting", broken: "No connection", paused: "Paused", problem: "Not available", gone: "Gone" };
let shown = "";
let late;

function stands(mine, { state, problem, since }) {
  if (mine !== current) return;
  if (state === "gone" && !mine.live.model) return missing(mine);
  const live = at("live");
  attribute(live, "data-state", state);
  text(live, WORDS[state]);
  if (state !== "live") clock.stop();
  clearTimeout(late);
  const trouble = state === "broken" || state === "problem" || state === "gone";
  if (!trouble) {
    if (shown && state === "live") announce("Live again.");
    banner("");
  } else if (state === "broken") {
    const message = `No answer from the operator since ${format.clock(since)}. ${mine.live?.model ? "The page shows the state of that time, and continues by itself." : "Trying again."}`;
    late = setTimeout(() => banner(message), shown ? 0 : BANNER_MS);
  } else banner((state === "gone" && mine.route.page.gone?.(mine.route)) || problem);
}

function banner(message) {
  shown = message;
  text(at("stale"), message);
  show(at("stale"), message);
}

// The skip link must not become a route.
at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("main").focus();
});
window.addEventListener("hashchange", go);
history.scrollRestoration = "manual";
go();
