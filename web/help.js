// What `?` shows: keys, what the search knows, and what the colours mean.
import { h } from "./dom.js";

const KEYS = [
  ["↑ ↓", "the row above or below"],
  ["→ ←", "open a row; close it, or go to the one around it"],
  ["Enter", "open or close"],
  ["[ ]", "the round before or after"],
  ["/", "search; Enter goes to the next match, Esc ends it"],
  ["i t", "iterations, timeline"],
  ["d", "dark or light"],
  ["+ − 0", "larger, smaller, all of it"],
  ["?", "this help"],
];

const SEARCH = [
  ["softmax", "names, expressions, variables, errors"],
  ["nan, inf", "steps that gave such values"],
  ["op:addmm", "a function or op; * is any letters"],
  ["shape:2,*,128", "a tensor of that shape; * is one dimension"],
  ["line:42, file:model", "steps at that line, in that file"],
  ["module:h.*", "modules by their path"],
  ["kind:step", "one kind of events"],
];

const HUES = [
  ["weights", "weights: linear, convolution, embedding, matrix products"],
  ["norm", "normalisation"],
  ["activation", "activation"],
  ["attention", "attention"],
  ["pool", "pooling, padding"],
  ["dropout", "dropout"],
  ["loss", "loss, backward, optimizer"],
];

const BOXES = [
  ["border-color:var(--accent)", "selected; its makers and users are tinted"],
  ["border-color:var(--red);background:var(--redtint)", "failed, or a bad value was made here"],
  ["border-color:var(--red)", "a bad value came by"],
  ["border-color:var(--red);border-style:dashed", "it came by in another round"],
];

/**
 * @param {HTMLElement} body
 */
export function helpButton(body) {
  const list = (rows, tag) => h("dl", {}, rows.map(([name, words]) => [h("dt", {}, h(tag, {}, name)), h("dd", {}, words)]));
  const hues = h("dl", {}, HUES.map(([hue, words]) => [h("dt", {}, h("i", { class: "dot " + hue })), h("dd", {}, words)]));
  const boxes = h("dl", {}, BOXES.map(([style, words]) => [h("dt", {}, h("i", { class: "sample", style })), h("dd", {}, words)]));
  const left = h("div", {}, h("h3", {}, "keys"), list(KEYS, "kbd"), h("h3", {}, "search"), list(SEARCH, "code"));
  const right = h("div", {}, h("h3", {}, "colours of steps"), hues, h("h3", {}, "boxes"), boxes, h("h3", {}, "to send it"),
    h("p", {}, "The page is one file and needs no network. Its address keeps what is selected, open and searched. Copy gives the answer, or the selected step, as Markdown; svg in the data flow saves the picture."));
  const close = h("button", { onclick: () => dialog.close() }, "Close");
  const dialog = h("dialog", { class: "help", "aria-label": "help" }, h("header", {}, h("h2", {}, "What is where"), close), h("div", { class: "columns" }, left, right));
  // Esc closes the dialog, and no key reaches the page behind it.
  dialog.addEventListener("keydown", (key) => key.stopPropagation());
  const show = () => {
    if (!dialog.isConnected) body.append(dialog);
    if (dialog.open) dialog.close();
    else dialog.showModal();
  };
  return { button: h("button", { title: "help, keys and colours", "aria-label": "help", onclick: show }, "?"), show };
}
