// @ts-check
// Elements of the page. Texts are only ever set as text: nothing that came from the program is read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

/**
 * Make an element: properties that begin with "on" are listeners, those that are empty are left out.
 * @template {string} T
 * @param {T} tag
 * @param {Record<string, any> | null} properties
 * @param {...Child} children
 * @returns {T extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[T] : HTMLElement}
 */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return /** @type {any} */ (element);
}

/**
 * Append what is there of a list.
 * @param {Element} element
 * @param {Child[]} children
 */
export function put(element, children) {
  const flat = /** @type {any[]} */ (children).flat(Infinity);
  for (const child of flat) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(safe(String(child))));
  }
}

/**
 * Put other children into an element.
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  put(element, children);
}

/**
 * A link to a step: one that the keyboard reaches, that can be opened elsewhere and copied.
 * @param {{select(event: number): void}} app
 * @param {number} event
 * @param {Record<string, any>} properties
 * @param {...Child} children
 */
export function link(app, event, properties, ...children) {
  const onclick = (/** @type {MouseEvent} */ click) => {
    if (click.ctrlKey || click.metaKey || click.shiftKey) return;
    click.preventDefault();
    app.select(event);
  };
  return h("a", { href: `#event=${event}`, onclick, ...properties }, children);
}

/**
 * Marks that turn the direction of writing would set a line of ours the wrong way round: they are spelt out.
 * @param {string} text
 */
export function safe(text) {
  const spelt = (/** @type {string} */ letter) => "\\u" + (letter.codePointAt(0) || 0).toString(16).padStart(4, "0");
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, spelt);
}

/**
 * @param {import("./types").Mark} mark
 * @returns {SVGElement}
 */
export function svgElement(mark) {
  const element = document.createElementNS(SVG, mark.t);
  const set = (/** @type {string} */ name, /** @type {string | number | undefined} */ value) => {
    if (value !== undefined) element.setAttribute(name, String(value));
  };
  set("class", mark.c);
  if (mark.t === "path") {
    set("d", mark.d);
    if (mark.arrow) set("marker-end", "url(#arrow)");
  } else if (mark.t === "circle") {
    set("cx", mark.x);
    set("cy", mark.y);
    set("r", mark.r);
  } else {
    set("x", mark.x);
    set("y", mark.y);
  }
  if (mark.t === "rect") {
    set("width", mark.w);
    set("height", mark.h);
    set("rx", mark.r);
  }
  if (mark.t === "text") {
    set("text-anchor", mark.anchor);
    element.textContent = safe(mark.s || "");
  }
  set("data-item", mark.item);
  set("data-toggle", mark.toggle);
  set("data-edge", mark.edge);
  return element;
}

/**
 * A time in words: `1.25 ms`.
 * @param {number} ticks
 * @param {number} tick nanoseconds of one
 */
export function duration(ticks, tick) {
  if (ticks < 0) return "—";
  const ns = ticks * tick;
  /** @type {[string, number][]} */
  const units = [["ns", 1], ["µs", 1e3], ["ms", 1e6]];
  for (const [unit, size] of units) {
    if (ns / size < 999.5) return `${three(ns / size)} ${unit}`;
  }
  return `${three(ns / 1e9)} s`;
}

/** @param {number} number */
function three(number) {
  if (number >= 99.95) return number.toFixed(0);
  return number >= 9.995 ? number.toFixed(1) : number.toFixed(2);
}

/** @param {number} number */
export function count(number) {
  return number.toLocaleString("en");
}
