// Before and after: values, reliability, payouts, and the accuracy of a model.
import { by, count, get, make, on, percent, post, said, shared, toast, unit, value } from "/static/api.js";
import { chart, table } from "/static/figure.js";
import { moveToRow } from "/static/table.js";

const panel = by("see");

const pair = (name, before, after, show, note = "") => {
  const known = after !== undefined && after !== null;
  const same = !known || show(before) === show(after);
  return make(
    "li",
    {},
    make("span", {}, name),
    make("strong", {}, known ? show(after) : show(before)),
    make("small", {}, [same ? (known ? "as before" : "") : `before ${show(before)}`, note].filter(Boolean).join(" · ")),
  );
};

const two = (x) => (x === null || x === undefined ? "–" : x.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "\u2212"));

const payouts = ({ before, after }) => {
  if (!before) return null;
  const later = new Map((after ?? before).owners.map((one) => [one.owner, one]));
  const money = (x) => Number(x).toLocaleString("en-US", { minimumFractionDigits: 2 });
  const rows = before.owners.map((one) => {
    const now = later.get(one.owner);
    const change = now ? Number(now.payout) - Number(one.payout) : -Number(one.payout);
    return [one.owner, money(one.payout), now ? money(now.payout) : "0.00", make("span", { class: change > 0 ? "up" : change < 0 ? "down" : "" }, `${change > 0 ? "+" : ""}${money(change.toFixed(2)).replace("-", "\u2212")}`), `${now ? count(now.rows) : 0} of ${count(one.rows)}`];
  });
  return make("section", {}, make("h2", {}, "Payouts"), make("p", { class: "conclusion" }, `${money(before.budget)} ${before.currency} in all, by the rule of the command.`), table("Payouts", ["Owner", ">Before", ">After", ">Change", ">Rows left"], rows));
};

const effect = (found) => {
  const box = make("section", { class: "effect" }, make("h2", {}, "Accuracy"));
  if (!shared.state.offers.accuracy) {
    box.append(make("p", { class: "conclusion" }, "Rows of one table are valued on each other. Name held-out rows with --test to compare models."));
    return box;
  }
  const where = shared.about.tested ? "the rows of --test" : "the validation rows, which the values come from: name others with --test for a fair comparison";
  const model = make("select", { id: "model" }, ...["logistic", "forest", "boosting"].map((name) => make("option", { value: name, selected: found?.model === name }, name)));
  const go = make("button", { type: "button", class: "main", onclick: () => said(post("/api/measure", { model: model.value }).then(() => toast("Fitting models"))) }, "Measure");
  box.append(
    make("p", { class: "conclusion" }, `Fitted on all rows, on those that the decisions leave, and without as many random rows; compared on ${where}.`),
    make("p", { class: "controls" }, make("label", {}, "Model ", model), go),
  );
  if (!found) return box;
  if (found.of !== shared.state.versions.decisions) box.append(make("p", { class: "stale" }, "Decisions have changed since this was measured."));
  const measures = [...new Set(found.lines.map((line) => line.measure))];
  const whats = [...new Set(found.lines.map((line) => line.what))];
  const cell = (measure, what) => {
    const line = found.lines.find((one) => one.measure === measure && one.what === what);
    if (!line) return "";
    return `${two(line.value)}${what.includes("-") ? ` (${two(line.low)} to ${two(line.high)})` : ""}`;
  };
  box.append(table("Accuracy", [`${found.model}`, ...whats.map((what) => `>${what}`)], measures.map((measure) => [measure, ...whats.map((what) => cell(measure, what))])));
  for (const note of found.notes) box.append(make("p", { class: "note" }, note));
  return box;
};

const draw = async () => {
  if (panel.hidden || !shared.state?.ready) return;
  const found = await get("/api/see");
  const { before, after } = found;
  const { state, about } = shared;
  const busy = state.jobs.find((job) => ["after", "exact"].includes(job.name) && ["running", "waiting"].includes(job.state));
  const status = make("div", { class: "status", role: "status" });
  if (busy) {
    status.append(
      make("span", {}, `${busy.title}…`),
      make("progress", { max: busy.total || null, value: busy.total ? busy.done : null, "aria-label": busy.title }),
      make("button", { type: "button", onclick: () => said(post("/api/cancel", { name: busy.name })) }, "Cancel"),
    );
  } else if (found.stale || (after && !found.exact)) {
    status.append(
      make("span", {}, found.stale ? "These values are from before the latest decisions." : `These values are within ${value(found.bound)} ${unit()} of those of a full run, which is ${"their bound"}.`),
      make("button", { type: "button", class: "main", onclick: () => said(post("/api/find", { what: "exact" }).then(draw)) }, "Full run"),
    );
  } else if (after) status.append(make("span", {}, `Exact: as a fresh run on the ${count(after.rows)} rows that are left${found.seconds ? `, in ${found.seconds < 1 ? `${Math.round(1000 * found.seconds)} ms` : `${found.seconds.toFixed(1)} s`}` : ""}.`));
  const counts = Object.entries(state.counts).filter(([, n]) => n);
  const done = counts.length ? counts.map(([name, n]) => `${count(n)} ${{ keep: "kept", drop: "dropped", relabel: "relabelled", weight: "weighted" }[name]}`).join(", ") : "No decision yet: values are those of all rows";
  const now = after ?? {};
  const parts = [
    make("h2", {}, "After your decisions"),
    make("p", { class: "conclusion" }, `${done}.`),
    status,
    found.warning ? make("p", { class: "stale" }, found.warning) : null,
    make(
      "ul",
      { class: "figures" },
      pair("Rows", before.rows, now.rows, count),
      pair("Reliability", before.reliability, now.reliability, two, "correlation with another sample"),
      pair("Points needed for 0.9", before.points_needed, now.points_needed, (x) => (x === null || x === undefined ? "–" : count(x))),
      pair("Surely positive", before.surely_positive, now.surely_positive, (x) => (x === null ? "–" : count(x))),
      pair("Surely negative", before.surely_negative, now.surely_negative, (x) => (x === null ? "–" : count(x))),
      pair("Mean value", before.mean, now.mean, value, unit()),
    ),
    payouts(found.payouts),
  ];
  if (after) {
    const role = (name, part, colour) => ({ name, role: colour, counts: part.counts });
    parts.push(
      make("h2", {}, "Values"),
      make(
        "div",
        { class: "charts many" },
        chart({ title: "How the values are distributed", kind: "histogram", data: { edges: found.edges, xName: "Value of a training row", series: [role("before", before, "clean"), role("after", after, "corrected")] }, alternative: "Distribution of the values before and after the decisions" }),
        make(
          "figure",
          { class: "card" },
          make("figcaption", {}, "Rows whose values changed most"),
          found.moved.length
            ? table("Rows whose values changed most", ["Row", about.task === "class" ? "Class" : "Target", ">Before", ">After"], found.moved.map((one) => [make("button", { type: "button", class: "link", onclick: () => jump(one.row) }, one.id), one.label, value(one.before), value(one.after)]))
            : make("p", { class: "quiet" }, "No value has changed."),
        ),
      ),
    );
  }
  parts.push(effect(found.effect), replay());
  const focus = document.activeElement?.id;
  panel.replaceChildren(...parts.filter(Boolean));
  if (focus && panel.querySelector(`#${CSS.escape(focus)}`)) panel.querySelector(`#${CSS.escape(focus)}`).focus();
};

const replay = () => {
  const command = `${shared.about.replay} --decisions ${/^[\w./-]+$/.test(shared.about.log) ? shared.about.log : `'${shared.about.log.replaceAll("'", "'\\''")}'`} --models none`;
  return make(
    "section",
    {},
    make("h2", {}, "Apply them"),
    make("p", { class: "conclusion" }, "Every decision is in the log already. This writes the table that they leave:"),
    make("pre", { tabindex: "0", "aria-label": "Command" }, command),
    make("p", { class: "controls" }, make("button", { type: "button", onclick: () => navigator.clipboard.writeText(command).then(() => toast("Copied"), () => toast("The browser does not let the page copy", true)) }, "Copy the command")),
  );
};

const jump = (row) => {
  by("tab-look").click();
  moveToRow(row);
};

let last = "";
export const start = () => {
  on("show-see", () => said(draw()));
  on("state", () => {
    const { state } = shared;
    const jobs = state.jobs.filter((job) => ["after", "exact"].includes(job.name)).map((job) => `${job.state}${job.done}`);
    const now = JSON.stringify([state.versions, jobs, state.stale]);
    if (now !== last && !panel.hidden) said(draw());
    last = now;
  });
};
