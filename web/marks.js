// Findings as marks: at the line, the step and the box where each shows. A click leads to what is said of it.
import { itemWith } from "./data.js";
import { h } from "./dom.js";

const ORDER = ["error", "bug", "likely", "hint"];

/**
 * @param {any} app
 */
export function makeMarks(app) {
  const { model } = app;
  const all = model.verdict ? model.verdict.findings : [];
  const byLine = new Map();
  const byItem = new Map();
  all.forEach((finding, number) => {
    if (finding.at) add(byLine, finding.at.file + ":" + finding.at.line, number);
    const item = finding.event >= 0 ? itemWith(model, finding.event) : null;
    if (item) add(byItem, item.number, number);
  });

  /** The numbers of the findings that an item shows: its own, and those of what is in it where it is closed. */
  function ofItem(item) {
    const found = [...(byItem.get(item.number) || [])];
    if (!app.open.has(item.number)) item.children.forEach((child) => found.push(...ofClosed(child)));
    return found;
  }

  function ofClosed(item) {
    const found = [...(byItem.get(item.number) || [])];
    item.children.forEach((child) => found.push(...ofClosed(child)));
    return found;
  }

  const worst = (numbers) => numbers.reduce((best, each) => (rank(all[each]) < rank(all[best]) ? each : best), numbers[0]);
  const words = (numbers) => numbers.map((each) => `${all[each].severity}: ${all[each].text}`).join("\n");

  /**
   * The sign before a row or a line; "" where nothing was found.
   * @param {number[]} numbers
   */
  function sign(numbers) {
    if (!numbers.length) return "";
    const go = (click) => {
      click.stopPropagation();
      app.showFinding(worst(numbers));
    };
    return h("button", { class: "mark " + all[worst(numbers)].severity, title: words(numbers), "aria-label": words(numbers), onclick: go }, "!");
  }

  /**
   * Round signs at the corners of boxes.
   * @param {{marks: any[]}} drawn
   * @returns {Element[]}
   */
  function badges(drawn) {
    const found = [];
    if (!byItem.size) return found;
    for (const mark of drawn.marks) {
      const isBox = mark.item !== undefined && mark.toggle === undefined && (mark.c.startsWith("box") || mark.c.startsWith("group"));
      if (!isBox) continue;
      const numbers = ofItem(model.items[mark.item]);
      if (numbers.length) found.push(badge(mark, numbers));
    }
    return found;
  }

  function badge(mark, numbers) {
    const isCircle = mark.t === "circle";
    const x = isCircle ? mark.x + mark.r * 0.8 : mark.x + mark.w - 3;
    const y = isCircle ? mark.y - mark.r * 0.8 : mark.y + 3;
    const group = svg("g", { class: "badge " + all[worst(numbers)].severity, transform: `translate(${x},${y})`, role: "button" });
    const title = svg("title", {});
    title.textContent = words(numbers);
    const text = svg("text", { "text-anchor": "middle", y: 4 });
    text.textContent = "!";
    group.append(title, svg("circle", { r: 7.5 }), text);
    group.addEventListener("click", (click) => {
      click.stopPropagation();
      app.showFinding(worst(numbers));
    });
    return group;
  }

  return {
    badges,
    ofRow: (item) => sign(ofItem(item)),
    ofLine: (file, line) => sign(byLine.get(file + ":" + line) || []),
  };
}

function rank(finding) {
  return ORDER.indexOf(finding.severity);
}

function add(map, key, number) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(number);
}

function svg(tag, properties) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
  return element;
}
