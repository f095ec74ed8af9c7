// One live page: its model, kept up to date by server-sent events, and whether it can still be trusted.

const SILENT_MS = 45_000; // The server speaks at least when something changes; a line this quiet is opened anew to be sure.
const RETRY_MS = 2_000; // A browser gives up a stream that was answered with an error; we ask again.
const HIDDEN_MS = 5_000; // A hidden tab closes its stream after this.
const KEPT = 12; // Models of pages seen before, so that going back shows something at once.

/** A JSON Merge Patch (RFC 7396). What did not change stays the same object, so that views can tell by identity. */
export function merged(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const before = target !== null && typeof target === "object" && !Array.isArray(target) ? target : {};
  const after = { ...before };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete after[key];
    else after[key] = merged(before[key], value);
  }
  return after;
}

const seen = new Map();

function remember(path, model) {
  seen.delete(path);
  seen.set(path, model);
  if (seen.size > KEPT) seen.delete(seen.keys().next().value);
}

/**
 * Follows api/live/PATH. `changed(model)` is called at most once a frame; `stands({state, since, problem})` whenever the
 * connection changes: live, waiting (first answer), broken (old data is shown), paused (nobody looks), problem, gone.
 */
export class Live {
  constructor(path, changed, stands) {
    this.path = path;
    this.model = seen.get(path);
    this.state = "waiting";
    this._changed = changed;
    this._stands = stands;
    this._tellVisibility = () => this._visibility();
    document.addEventListener("visibilitychange", this._tellVisibility);
    if (this.model) this._draw();
    this._open();
  }

  close() {
    document.removeEventListener("visibilitychange", this._tellVisibility);
    this._ended = true;
    this._drop();
    cancelAnimationFrame(this._frame);
  }

  _open() {
    this._drop();
    const source = new EventSource(`api/live/${this.path}`);
    this._source = source;
    source.addEventListener("state", (event) => this._take(JSON.parse(event.data)));
    source.addEventListener("patch", (event) => this._take(merged(this.model, JSON.parse(event.data))));
    source.addEventListener("gone", (event) => this._gone(JSON.parse(event.data).problem));
    source.addEventListener("error", () => this._broken(source));
    this._watch();
  }

  _drop() {
    this._source?.close();
    this._source = undefined;
    clearTimeout(this._silence);
    clearTimeout(this._retry);
  }

  _watch() {
    clearTimeout(this._silence);
    this._silence = setTimeout(() => this._open(), SILENT_MS);
  }

  _take(model) {
    this.model = model;
    remember(this.path, model);
    this._say("live");
    this._watch();
    this._draw();
  }

  _draw() {
    if (this._frame) return;
    this._frame = requestAnimationFrame(() => {
      this._frame = 0;
      if (!this._ended && this.model) this._changed(this.model);
    });
  }

  _gone(problem) {
    seen.delete(this.path);
    this._drop();
    this._retry = setTimeout(() => this._open(), 5 * RETRY_MS); // It may be made anew.
    this._say("gone", problem); // Last: whoever hears it may close this.
  }

  async _broken(source) {
    if (this._ended || source !== this._source) return;
    if (this.state === "gone") return;
    if (this.state !== "problem") this._say("broken");
    if (source.readyState !== EventSource.CLOSED) return; // The browser tries again by itself.
    this._drop();
    const problem = await this._why();
    if (this._ended || this._source) return;
    if (problem) this._say("problem", problem);
    this._retry = setTimeout(() => this._open(), RETRY_MS);
  }

  /** What the server says against this page, if it says something: an EventSource cannot read a refusal. */
  async _why() {
    try {
      const reply = await fetch(`api/${this.path}`, { cache: "no-store" });
      if (reply.ok) return "";
      const told = await reply.json().catch(() => ({}));
      return told.problem || `The server answered ${reply.status} ${reply.statusText}.`;
    } catch {
      return "";
    }
  }

  _visibility() {
    clearTimeout(this._hiding);
    if (document.hidden) {
      this._hiding = setTimeout(() => {
        this._drop();
        this._say("paused");
      }, HIDDEN_MS);
    } else if (!this._source) this._open();
  }

  _say(state, problem = "") {
    if (state === this.state && problem === this.problem) return;
    this.state = state;
    this.problem = problem;
    this._stands({ state, problem, since: Date.now() });
  }
}
