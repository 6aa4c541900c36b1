// Elements of the page. Texts are only ever set as text: nothing that came from the program is read as markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  put(element, children);
  return element;
}

export function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(safe(String(child))));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  put(element, children);
}

// Marks that turn the direction of writing would set a line of ours the wrong way round: they are spelt out.
export function safe(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (letter) => "\\u" + letter.codePointAt(0).toString(16).padStart(4, "0"));
}

export function svgElement(mark) {
  const tag = mark.t, element = document.createElementNS(SVG, tag), set = (name, value) => element.setAttribute(name, value);
  set("class", mark.c);
  if (tag === "rect") { set("x", mark.x); set("y", mark.y); set("width", mark.w); set("height", mark.h); set("rx", mark.r); }
  else if (tag === "circle") { set("cx", mark.x); set("cy", mark.y); set("r", mark.r); }
  else if (tag === "path") { set("d", mark.d); if (mark.arrow) set("marker-end", "url(#arrow)"); }
  else { set("x", mark.x); set("y", mark.y); if (mark.anchor) set("text-anchor", mark.anchor); element.textContent = safe(mark.s); }
  if (mark.item !== undefined) set("data-item", mark.item);
  if (mark.toggle !== undefined) set("data-toggle", mark.toggle);
  return element;
}

export function duration(ticks, tick) {
  if (ticks < 0) return "—";
  const ns = ticks * tick;
  for (const [unit, size] of [["ns", 1], ["µs", 1e3], ["ms", 1e6]]) if (ns / size < 999.5) return three(ns / size) + " " + unit;
  return three(ns / 1e9) + " s";
}

function three(number) {
  return number >= 99.95 ? number.toFixed(0) : number >= 9.995 ? number.toFixed(1) : number.toFixed(2);
}

export function count(number) {
  return number.toLocaleString("en");
}
