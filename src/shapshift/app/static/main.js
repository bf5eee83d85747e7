// Starts the page: views, keys, decisions, and what follows the state of the server.
import { by, column, count, ensure, get, make, on, post, postForFile, postForRows, said, select, selectedRows, setUnit, shared, tell, toast, unit, unscaled } from "/static/api.js";
import * as ask from "/static/ask.js";
import * as map from "/static/map.js";
import * as row from "/static/row.js";
import * as see from "/static/see.js";
import * as sellers from "/static/sellers.js";
import * as spread from "/static/spread.js";
import * as table from "/static/table.js";

const root = document.documentElement;
const VIEWS = ["look", "see", "ask", "sellers"];
const undone = []; // operations of this tab, the last at the end
let view = "look";

// Views

const show = (name, focus = false) => {
  if (by(`tab-${name}`).hidden) return;
  view = name;
  for (const one of VIEWS) {
    const isIt = one === name;
    by(one).hidden = !isIt || (!shared.state?.ready && one !== "sellers");
    by(`tab-${one}`).setAttribute("aria-selected", String(isIt));
    by(`tab-${one}`).tabIndex = isIt ? 0 : -1;
  }
  if (name !== "look") row.close();
  by("wait").hidden = Boolean(shared.state?.ready) || name === "sellers";
  if (focus) by(`tab-${name}`).focus();
  tell("view-shown");
  tell(`show-${name}`);
};

by("tabs").addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) show(tab.id.slice(4));
});
by("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const there = VIEWS.filter((name) => !by(`tab-${name}`).hidden);
  show(there[(there.indexOf(view) + step + there.length) % there.length], true);
});

// Light and dark

const system = matchMedia("(prefers-color-scheme: dark)");
let theme = null; // what was asked for instead of the system's
const isDark = () => root.dataset.theme === "dark";
const nameTheme = () => {
  root.dataset.theme = theme ?? (system.matches ? "dark" : "light");
  by("theme").textContent = isDark() ? "Light" : "Dark";
  by("theme").setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
  tell("theme");
};
by("theme").addEventListener("click", () => {
  theme = isDark() ? "light" : "dark";
  nameTheme();
});
system.addEventListener("change", nameTheme);

// Decisions

const decide = async (action, more = {}, rows = selectedRows()) => {
  if (!rows.length) return toast("Select rows first, or move to one.", true);
  const found = await post("/api/decide", { action, rows, ...more });
  undone.push(found.operation);
  follow(found);
  const what = { keep: "kept", drop: "dropped", relabel: "relabelled", weight: "weighted" }[action];
  toast(`${count(rows.length)} ${rows.length === 1 ? "row" : "rows"} ${what}`);
};

const undo = async () => {
  if (!undone.length) return;
  const operation = undone.pop();
  const found = await post("/api/undo", { operation }).catch((error) => {
    undone.push(operation); // it can be tried again
    undone.sort((a, b) => a - b);
    throw error;
  });
  follow(found);
  const kept = found.kept ? `; ${count(found.kept)} decided about again since stay as they are` : "";
  toast(`Undone for ${count(found.undone)} ${found.undone === 1 ? "row" : "rows"}${kept}`);
};

const download = async () => {
  const rows = selectedRows();
  if (!rows.length) return toast("Select rows first, or move to one.", true);
  const url = URL.createObjectURL(await postForFile("/api/csv", { rows }));
  make("a", { href: url, download: "rows.csv" }).click();
  URL.revokeObjectURL(url);
};

const dialog = by("ask-label");
let asking = null;
const open = (action, rows) => {
  if (!rows.length) return toast("Select rows first, or move to one.", true);
  const byClass = action === "relabel" && shared.about.classes;
  asking = { action, rows };
  by("ask-title").textContent = `${action === "relabel" ? "Relabel" : "Weight"} ${count(rows.length)} ${rows.length === 1 ? "row" : "rows"}`;
  by("ask-select-box").hidden = !byClass;
  by("ask-input-box").hidden = Boolean(byClass);
  by("ask-input-box").firstChild.textContent = action === "relabel" ? "New label " : "Weight ";
  by("ask-input").min = action === "relabel" ? "" : "0";
  by("ask-input").value = action === "weight" ? "0.5" : "";
  const suggested = rows.length === 1 ? row.suggested(rows[0]) : null;
  if (byClass && suggested) by("ask-select").value = suggested;
  by("ask-reason").value = "";
  dialog.showModal();
  (byClass ? by("ask-select") : by("ask-input")).focus();
};
by("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { action, rows } = asking;
  const byClass = action === "relabel" && shared.about.classes;
  const given = byClass ? by("ask-select").value : by("ask-input").value;
  const reason = by("ask-reason").value.trim();
  dialog.close();
  said(decide(action, { ...(action === "weight" ? { weight: given === "" ? null : Number(given) } : { label: given }), reason }, rows));
});
by("ask-no").addEventListener("click", () => dialog.close());

export const act = (action, rows = selectedRows()) => (action === "relabel" || action === "weight" ? open(action, rows) : said(decide(action, {}, rows)));
on("act", () => {
  const { action, rows, more } = shared.wanted;
  if (more) said(decide(action, more, rows));
  else act(action, rows);
});

by("acts").addEventListener("click", (event) => {
  const action = event.target.closest("[data-act]")?.dataset.act;
  if (action) act(action);
});
by("csv").addEventListener("click", () => said(download()));
by("none").addEventListener("click", () => select((mask) => mask.fill(0)));
by("undo").addEventListener("click", () => said(undo()));

// Keys

by("help").addEventListener("click", () => by("keys").showModal());
by("keys-close").addEventListener("click", () => by("keys").close());
const KEYS = { k: "keep", d: "drop", r: "relabel", w: "weight" };
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (event.key === "Escape" && !dialog.open && !by("keys").open) {
    if (!by("row").hidden) row.close();
    else if (event.target.id === "f-text") by("grid").focus();
    else if (shared.selected && !typing) select((mask) => mask.fill(0));
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.toLowerCase();
  const place = "1234".indexOf(event.key);
  if (place >= 0 && event.key.length === 1) return show(VIEWS[place], true);
  if (key === "?") return by("keys").showModal();
  if (key === "u") return said(undo());
  if (view !== "look" || !shared.state?.ready) return;
  if (key === "/") {
    event.preventDefault();
    by("f-text").focus();
  } else if (KEYS[key]) {
    event.preventDefault();
    act(KEYS[key]);
  } else if (key === "s" && shared.active >= 0) {
    said(row.takeSuggestion());
  } else if (key === "a") {
    select((mask) => {
      for (const at of shared.order) mask[at] = 1;
    });
  }
});

// The view: what the filters let through, in the order of the table

const query = () => {
  const number = (id) => (by(id).value === "" ? null : unscaled(Number(by(id).value)));
  const chosen = (id) => (by(id).value === "" ? [] : [Number(by(id).value)]);
  return {
    ...table.sorting(),
    text: by("f-text").value,
    labels: chosen("f-labels"),
    owners: chosen("f-owners"),
    sign: by("f-sign").value,
    decision: by("f-decision").value,
    suspicion: by("f-suspicion").value === "" ? null : Number(by("f-suspicion").value),
    low: number("f-low"),
    high: number("f-high"),
    copies: by("f-copies").checked,
  };
};

let asked = 0;
let lastOrder = new Uint32Array();
const narrow = () => {
  const only = by("f-selected").checked;
  shared.order = only ? lastOrder.filter((at) => shared.mask[at]) : lastOrder;
  const all = shared.order.length === shared.about.rows;
  shared.inView = all ? null : new Uint8Array(shared.about.rows);
  if (!all) for (const at of shared.order) shared.inView[at] = 1;
  tell("view");
};
const refresh = async () => {
  asked += 1;
  const mine = asked;
  by("grid").setAttribute("aria-busy", "true");
  const found = await postForRows("/api/view", query());
  if (mine !== asked) return;
  lastOrder = found;
  by("grid").removeAttribute("aria-busy");
  narrow();
};
on("sort", () => said(refresh()));

let typing;
by("filters").addEventListener("input", (event) => {
  clearTimeout(typing);
  if (event.target.id === "f-selected") return narrow();
  by("grid").setAttribute("aria-busy", "true");
  typing = setTimeout(() => said(refresh()), event.target.type === "search" || event.target.type === "number" ? 120 : 0);
});
by("filters").addEventListener("submit", (event) => event.preventDefault());
by("filters").addEventListener("reset", () => by("grid").setAttribute("aria-busy", "true") ?? setTimeout(() => said(refresh()), 0));

on("view", () => {
  const all = shared.about.rows;
  by("count").textContent = shared.order.length === all ? `${count(all)} rows` : `${count(shared.order.length)} of ${count(all)} rows`;
});
on("selection", () => {
  by("chosen").textContent = shared.selected ? `${count(shared.selected)} selected` : "No selection: keys act on the current row";
  by("none").disabled = !shared.selected;
  if (by("f-selected").checked) narrow();
});

// The state of the server

const showWork = (state) => {
  const busy = state.jobs.filter((job) => job.state === "running" && job.name !== "values" && job.name !== "after");
  const known = { suspects: "suspicion", copies: "copies" };
  const titles = { suspects: "Look for suspect labels", copies: "Look for copies" };
  const missing = Object.keys(known).filter((what) => state.offers[what] && !state.known.includes(known[what]) && !state.jobs.some((job) => job.name === what && ["running", "waiting"].includes(job.state)));
  if (by("looks").childElementCount !== missing.length) {
    by("looks").replaceChildren(...missing.map((what) => make("button", { type: "button", onclick: () => said(post("/api/find", { what }).then(follow)) }, titles[what])));
  }
  const failed = state.jobs.filter((job) => job.state === "failed" && !shared.told?.has(job.name + job.error));
  shared.told ??= new Set();
  for (const job of failed) {
    shared.told.add(job.name + job.error);
    if (job.name !== "values") toast(`${job.title}: ${job.error}`, true);
  }
  by("work").replaceChildren(
    ...busy.map((job) =>
      make(
        "div",
        {},
        make("span", {}, job.title),
        make("progress", { max: job.total || null, value: job.total ? job.done : null, "aria-label": job.title }),
        make("button", { type: "button", "aria-label": `Cancel: ${job.title}`, onclick: () => said(post("/api/cancel", { name: job.name }).then(follow)) }, "Cancel"),
      ),
    ),
  );
  by("work").hidden = !busy.length;
};

const showWaiting = (state) => {
  const job = state.jobs.find((one) => one.name === "values");
  if (!job || state.ready) return;
  const failed = job.state === "failed" || job.state === "cancelled";
  by("wait-title").textContent = failed ? "The rows could not be valued" : job.title;
  by("wait-text").textContent = failed ? job.error || "It was cancelled." : job.total ? `${count(job.done)} of ${count(job.total)} validation rows` : "";
  by("wait-bar").hidden = failed;
  if (job.total) [by("wait-bar").max, by("wait-bar").value] = [job.total, job.done];
};

let versions = {};
let starting = null;
const follow = (state) => {
  shared.state = state;
  showWork(state);
  showWaiting(state);
  const decided = Object.values(state.counts).reduce((a, b) => a + b, 0);
  by("decided").textContent = decided ? `${count(decided)} decided` : "";
  by("undo").disabled = !undone.length;
  if (state.ready && !starting) starting = said(start());
  const changed = Object.keys(state.versions).filter((name) => versions[name] !== state.versions[name]);
  versions = state.versions;
  if (changed.length && starting) starting.then(() => said(renew(changed)));
  tell("state");
};

const renew = async (changed) => {
  const stale = { decisions: ["decision"], suspects: ["suspicion"], values: ["x", "y"], after: ["after"], copies: [] };
  const wanted = changed.flatMap((what) => stale[what] ?? []).filter((name) => name === "decision" || shared.state.known.includes(name));
  await Promise.all(wanted.map(async (name) => shared.columns.set(name, await column(name)))); // the old ones serve meanwhile
  tell("columns");
  const by_ = query();
  const matters = { decisions: by_.decision || by_.sort === "decision", suspects: by_.suspicion !== null || by_.sort === "suspicion", after: by_.sort === "after", copies: by_.copies || by_.sort === "copies" };
  if (changed.some((what) => matters[what])) await refresh();
  else tell("view-stale");
};

const start = async () => {
  const { about } = shared;
  shared.mask = new Uint8Array(about.rows);
  await Promise.all([refresh(), ensure("value", "label", "decision", ...(about.owners ? ["owner"] : []))]);
  setUnit(shared.columns.get("value"));
  by("in-units").textContent = unit() ? `Values in ${unit().slice(1)}` : "";
  for (const start of [table.start, map.start, spread.start, row.start, see.start, ask.start]) start();
  const names = { labels: about.classes, owners: about.owners };
  for (const [name, list] of Object.entries(names)) {
    const box = by(`f-${name}`);
    box.parentElement.hidden = !list;
    list?.forEach((text, code) => box.append(make("option", { value: code }, text)));
  }
  about.classes?.forEach((text) => by("ask-select").append(make("option", { value: text }, text)));
  tell("columns");
  tell("selection");
  show(view);
  tell("view");
  root.dataset.drawn = "";
};

const isBusy = () => shared.state?.jobs.some((job) => job.state === "running" || job.state === "waiting") || !shared.state?.ready;
const poll = async () => {
  try {
    follow(await get("/api/state"));
    root.classList.remove("gone");
  } catch (error) {
    if (!root.classList.contains("gone")) toast(error.message, true);
    root.classList.add("gone");
  }
  setTimeout(poll, document.hidden ? 4000 : isBusy() ? 150 : 1200);
};

const begin = async () => {
  nameTheme();
  const { study, ledger } = await get("/api/about");
  shared.about = study;
  by("name").textContent = study?.name ?? ledger;
  document.title = `${study?.name ?? ledger} · shapshift`;
  for (const name of ["look", "see", "ask"]) by(`tab-${name}`).hidden = !study;
  by("tab-sellers").hidden = !ledger;
  by("undo").hidden = !study;
  sellers.start(ledger);
  if (study) poll();
  else {
    show("sellers");
    root.dataset.drawn = "";
  }
};

said(begin());
