// For operators: what one seller gets to see, from the ledger.
import { by, count, get, make, on, said } from "/static/api.js";

const panel = by("sellers");
let rounds = null;

const words = { submit: "submitted", withdraw: "withdrew", paid: "was paid", open: "opened", close: "closed" };

const show = async (round, seller, name) => {
  const box = panel.querySelector("#seller");
  const history = await get(`/api/history/${round}/${seller}`);
  const frame = make("iframe", { title: `Statement of ${name}`, sandbox: "", src: `/statement/${round}/${seller}` });
  box.replaceChildren(
    make("h3", {}, "The statement, as the seller gets it"),
    frame,
    make("h3", {}, "What the ledger has of this seller"),
    make("ol", { class: "history" }, ...history.map((one) => make("li", {}, make("strong", {}, `${one.round}: ${words[one.what] ?? one.what}${one.amount ? ` ${one.amount}` : one.rows ? ` ${count(one.rows)} rows` : ""}`), make("span", { class: "quiet" }, ` ${one.time}`), one.receipt ? make("code", {}, one.receipt.slice(0, 16)) : null))),
  );
};

const draw = async () => {
  if (panel.hidden) return;
  rounds ??= await get("/api/sellers");
  if (panel.childElementCount) return;
  panel.append(make("h2", {}, "A seller's page"));
  if (!rounds.length) {
    panel.append(make("p", { class: "conclusion" }, "No round of this ledger is closed yet, so there are no statements. Close one: shapshift market close."));
    return;
  }
  const round = make("select", { id: "round" }, ...rounds.map((one, k) => make("option", { value: k }, one.round)));
  const seller = make("select", { id: "seller-name" });
  const fill = () => {
    const one = rounds[round.value];
    seller.replaceChildren(...one.sellers.map((name, k) => make("option", { value: k }, name)));
    go();
  };
  const go = () => {
    const one = rounds[round.value];
    if (one.sellers.length) said(show(one.key, Number(seller.value), one.sellers[seller.value]));
    else panel.querySelector("#seller").replaceChildren(make("p", { class: "quiet" }, "Nobody had submitted a table to this round."));
  };
  round.addEventListener("change", fill);
  seller.addEventListener("change", go);
  panel.append(
    make("p", { class: "conclusion" }, "One seller at a time: nothing of others is on these pages, as on the statements that sellers are sent."),
    make("p", { class: "controls" }, make("label", {}, "Round ", round), make("label", {}, "Seller ", seller)),
    make("div", { id: "seller" }),
  );
  fill();
};

export const start = (ledger) => {
  if (ledger) on("show-sellers", () => said(draw()));
};
