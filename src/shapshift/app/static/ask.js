// What the validation rows can be relied on for: the report's sections about them, and single points.
import { by, count, get, make, on, percent, post, said, shared } from "/static/api.js";
import { chart, table } from "/static/figure.js";

const panel = by("ask");
let profile = null;
let last = "";

const jobs = (name) => shared.state.jobs.find((job) => job.name === name && ["running", "waiting"].includes(job.state));

const asking = (what, title, text) => {
  if (!shared.state.offers[what]) return null;
  const busy = jobs(what);
  const button = make("button", { type: "button", class: "main", disabled: Boolean(busy), onclick: () => said(post("/api/find", { what }).then(draw)) }, busy ? "Under way…" : title);
  return make("div", { class: "offer" }, make("p", {}, text), button);
};

const points = (found) => {
  const parts = [make("h2", {}, "Points with the most influence")];
  if (!found) {
    const offer = asking("influence", "Leave out each point", "What would the values be without each of the validation rows? This values every training row on each of them once more.");
    return offer ? [...parts, offer] : [];
  }
  const two = (x) => (x === null ? "–" : x.toFixed(2));
  return [
    ...parts,
    make("p", { class: "conclusion" }, "Without a point the values change by so many of their standard deviations (root mean square over the rows). Points that agree little with all others are worth a look: their label may be wrong."),
    table("Points with the most influence", ["Point", shared.about.task === "class" ? "Class" : "Target", ">Change without it", ">Agreement with the others", ">Signs that change", "Where"], found.map((p) => [p.id, p.label, p.change === null ? "–" : p.change.toPrecision(2), two(p.agreement), count(p.flips), p.boundary ? "on the boundary" : ""])),
  ];
};

const coverage = () => {
  if (!profile?.levels) return [];
  const { levels } = profile;
  const nothing = levels.map(() => null);
  const line = (name, role, k) => ({ name, role, mean: levels.map((level) => level[k]), low: nothing, high: nothing });
  const data = { series: [line("validation", "corrected", 1), line("training", "noisy", 2)], levels: levels.map((level) => level[0].toFixed(2)), x: levels.map((level) => Number(level[0].toFixed(2))), log: false, xName: "Entropy of the nearest rows' labels (nats)", show: "percent", reference: null, referenceName: "" };
  const share = (x) => (x === null ? "–" : percent(x));
  return [
    make("h2", {}, "Boundary coverage"),
    make("p", { class: "conclusion" }, `${profile.verdict[0].toUpperCase()}${profile.verdict.slice(1)}.`),
    make("div", { class: "charts many" }, levels.length > 1 ? chart({ title: "Points by the entropy of their nearest rows", kind: "curves", data, columns: ["entropy", ">validation", ">training"], rows: levels.map((level) => [level[0].toFixed(3), share(level[1]), share(level[2])]) }) : null, make("figure", { class: "card" }, make("figcaption", {}, "Classes"), table("Classes", ["Class", ">Validation", ">Training", ">On the boundary"], profile.classes.map((one) => [one.label, share(one.validation), share(one.training), share(one.boundary)])))),
  ];
};

const section = (one) => [
  make("h2", {}, one.title),
  make("p", { class: "conclusion" }, one.conclusion),
  make("div", { class: `charts ${one.charts.length > 2 ? "small" : "many"}` }, ...one.charts.map(chart)),
  ...one.notes.map((note) => make("p", { class: "note" }, note)),
];

const draw = async () => {
  if (panel.hidden || !shared.state?.ready) return;
  if (!panel.childElementCount) panel.append(make("p", { class: "quiet busy" }, "Looking at the validation rows…"));
  const found = await get("/api/ask");
  profile ??= await get("/api/profile");
  const of = (id) => found.sections.filter((one) => one.id === id).flatMap(section);
  const noise = found.audited
    ? [...(found.verdict ? [make("p", { class: "conclusion" }, "")] : []), ...of("shift"), ...of("neighbours")]
    : [make("h2", {}, "What noise would do"), asking("audit", "Add noise", "How far would the values move if the validation rows were noisy? This values all rows again on noisy versions of them.") ?? make("p", { class: "conclusion" }, "Rows of one table are valued on each other: noise in them is not told apart.")];
  panel.replaceChildren(...of("trust"), ...points(found.influence), ...coverage(), ...of("boundary"), ...noise.filter((one) => one.textContent));
};

export const start = () => {
  on("show-ask", () => said(draw()));
  on("state", () => {
    const { state } = shared;
    const now = JSON.stringify([state.versions.ask, state.versions.values, Boolean(jobs("influence")), Boolean(jobs("audit"))]);
    if (now !== last && !panel.hidden) said(draw());
    last = now;
  });
};
