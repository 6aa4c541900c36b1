// The trail of the first bad value: which steps, boxes and lines are red in the round that is shown. Python found it.

/**
 * What is asked about the trail; of a run without a bad value everything answers no.
 * @param {any} app
 */
export function makeTrail(app) {
  const { model } = app;
  const source = model.trail ? model.trail.event : -1;
  const events = numbers(model.trail ? model.trail.after : []);
  const values = numbers(model.trail ? model.trail.values : []);
  const sourceIn = withParents(model, source >= 0 ? [source] : []);
  const reachedIn = withParents(model, events);
  if (source >= 0) events.add(source);

  /** Whether an item holds the source or what it reached, in whatever round. */
  const touched = new Set();
  for (const item of model.items) {
    if (!item.nodes.some((node) => sourceIn.has(node) || reachedIn.has(node))) continue;
    for (let each = item; each && !touched.has(each.number); each = model.items[each.parent]) touched.add(each.number);
  }

  /**
   * "source": it was made here; "holds": in one of the steps that are shown in it; "bad": it came by here; "later": it
   * did so in another round; "": it did not.
   * @param {any} item
   * @returns {"source" | "holds" | "bad" | "later" | ""}
   */
  function stateOf(item) {
    const state = roundState(item);
    return state === "source" && item.children.length && app.open.has(item.number) ? "holds" : state;
  }

  /** @returns {"source" | "bad" | "later" | ""} */
  function roundState(item) {
    if (!touched.has(item.number)) return "";
    if (!item.nodes.length) return stateOfGroup(item);
    const event = app.eventOf(item);
    if (sourceIn.has(event)) return "source";
    return events.has(event) || reachedIn.has(event) ? "bad" : "later";
  }

  // A loop or a function has no event of its own: it is what the steps in it are.
  /** @returns {"source" | "bad" | "later"} */
  function stateOfGroup(item) {
    /** @type {"bad" | "later"} */
    let found = "later";
    for (const child of item.children) {
      const state = roundState(child);
      if (state === "source") return "source";
      if (state === "bad") found = "bad";
    }
    return found;
  }

  /**
   * Colour a box or a line of the data flow.
   * @param {Element} element
   * @param {any} mark
   */
  function mark(element, mark) {
    if (mark.plain !== undefined) markWord(element, mark);
    if (source < 0) return;
    if (mark.from !== undefined && mark.item === undefined) element.classList.toggle("bad", isBadLine(mark));
    if (mark.item === undefined || mark.toggle !== undefined) return;
    const state = stateOf(model.items[mark.item]);
    for (const name of ["source", "holds", "bad", "later"]) element.classList.toggle(name, state === name);
  }

  // A word beside a line counts what is not finite in the round that is shown, where that is known.
  function markWord(element, mark) {
    const item = model.items[mark.giver];
    const given = item.nodes.length ? model.events.gives[app.eventOf(item)] : [];
    if (mark.out >= given.length) return;
    const known = model.values.stats[given[mark.out]];
    const text = [mark.plain, known ? notFinite(known) : ""].filter(Boolean).join(" ");
    if (element.textContent !== text) element.textContent = text;
    element.classList.toggle("bad", mark.isBad && values.has(given[mark.out]));
  }

  // Of a line that stands for all rounds: whether it carries a bad value in the round that is shown.
  function isBadLine(mark) {
    if (!mark.isBad) return false;
    const item = model.items[mark.from];
    if (!item || !item.nodes.length) return !item || stateOf(item) !== "later";
    const given = model.events.gives[app.eventOf(item)];
    if (given.length === 0) return stateOf(item) !== "later";
    return mark.out < given.length ? values.has(given[mark.out]) : given.some((value) => values.has(value));
  }

  return { source, events, values, stateOf, mark };
}

/** `4 NaN, 1 inf`, as details say it. @param {any} known */
function notFinite(known) {
  const words = [["nan", "NaN"], ["inf", "inf"]];
  return words.filter(([name]) => known[name] > 0).map(([name, word]) => `${known[name].toLocaleString("en")} ${word}`).join(", ");
}

/** @param {number[]} steps */
function numbers(steps) {
  const found = new Set();
  let last = 0;
  for (const step of steps) {
    last += step;
    found.add(last);
  }
  return found;
}

function withParents(model, events) {
  const found = new Set();
  for (const event of events) {
    for (let each = event; each >= 0 && !found.has(each); each = model.events.parent[each]) found.add(each);
  }
  return found;
}
