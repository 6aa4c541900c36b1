// Sending what one sees to somebody else: the card or the selected step as Markdown.
import { sampleOf } from "./data.js";
import { duration, h } from "./dom.js";

/**
 * @param {any} app
 */
export function shareButton(app) {
  const title = "copy the answer, or the selected step, as Markdown";
  return h("button", { title, class: "share", onclick: () => copy(markdown(app)) }, "Copy");
}

/**
 * What is shown in the details, as Markdown.
 * @param {any} app
 */
export function markdown(app) {
  const parts = app.isHome && app.model.verdict ? [...diffLines(app.model.diff), ...cardLines(app.model)] : stepLines(app);
  return parts.join("\n") + "\n";
}

// ---------------------------------------------------------------- card

function cardLines({ verdict, run }) {
  const lines = [`### ${plain(verdict.text)}`];
  for (const row of verdict.rows) lines.push(row.kind === "heading" ? `\n**${plain(row.cells[0][1])}**` : "- " + rowText(row));
  for (const each of verdict.also) lines.push("- " + plain(each.text));
  for (const finding of verdict.findings) {
    const often = finding.times > 1 ? ` (× ${finding.times.toLocaleString("en")})` : "";
    lines.push("", `**${finding.severity}: ${plain(finding.text)}**${often}`, ...finding.rows.map((row) => "- " + rowText(row)));
  }
  lines.push("", "| | |", "|---|---|", `| run | ${cell(run.name || "trace")} |`);
  for (const line of verdict.about) lines.push(`| ${line.label} | ${cell(line.parts.map(([text]) => text).join(" "))} |`);
  return lines;
}

function rowText(row) {
  const words = row.cells.map(([kind, text]) => (kind === "expression" || kind === "source" ? code(text) : plain(text)));
  return words.join(" ") + (row.at ? ` at ${code(row.at.word)}` : "");
}

function diffLines(diff) {
  if (!diff) return [];
  const lines = [`### ${plain(diff.text)}`];
  for (const section of diff.sections) {
    if (section.title) lines.push("", `**${plain(section.title)}**`);
    for (const row of section.rows) lines.push(`- ${row.label} ${code([row.module, row.text].filter(Boolean).join("  "))}${row.at ? " at " + code(row.at.word) : ""}`);
  }
  return [...lines, plain(diff.summary), ""];
}

// ---------------------------------------------------------------- step

function stepLines(app) {
  const { model, selected } = app;
  if (selected < 0) return [`### ${plain(model.run.name || "trace")}`];
  const sample = sampleOf(model, selected);
  const at = sample.at;
  const file = at ? (at.file >= 0 ? model.files[at.file].name : at.path) : "";
  const lines = [`### ${code(sample.code || sample.name)}`, ""];
  const place = at ? " at " + code(file + ":" + at.line) : "";
  lines.push(`- ${sample.kind} ${plain(sample.module || sample.name)}${place}, event ${selected} of ${plain(model.run.name || "the trace")}`);
  if (sample.error) lines.push(`- failed: ${plain(sample.error)}`);
  model.events.takes[selected].forEach((value, place) => lines.push(`- takes ${valueText(model, sample.roles[place], value)}`));
  model.events.gives[selected].forEach((value, place) => lines.push(`- gives ${valueText(model, sample.results[place], value)}`));
  lines.push(`- took ${duration(model.events.spent[selected], model.tick)} (host time)`);
  return lines;
}

function valueText(model, role, value) {
  const stats = model.values.stats[value];
  const known = ["mean", "std", "min", "max", "nan", "inf"].filter((name) => stats && stats[name] !== undefined && (stats[name] || name.length > 3));
  const words = known.map((name) => `${name} ${stats[name]}`).join(", ");
  const name = role ? plain(role) + " " : "";
  return name + code(model.values.word[value]) + (words ? " (" + words + ")" : "");
}

// ---------------------------------------------------------------- text

// What a program calls its things is text in Markdown, too, and no markup.
function plain(text) {
  return text.replace(/[\\`*_[\]<>#|~]/g, "\\$&");
}

function cell(text) {
  return plain(text.replace(/\s+/g, " "));
}

function code(text) {
  const one = text.replace(/\s+/g, " ");
  const longest = Math.max(0, ...(one.match(/`+/g) || []).map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  return longest ? `${fence} ${one} ${fence}` : `${fence}${one}${fence}`;
}

/**
 * Put text on the clipboard; where the browser does not allow that, by way of a field.
 * @param {string} text
 */
async function copy(text) {
  let isDone = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = h("textarea", {});
    field.value = text;
    document.body.append(field);
    field.select();
    isDone = document.execCommand("copy");
    field.remove();
  }
  say(isDone ? "Copied as Markdown" : "This browser did not allow copying");
}

function say(text) {
  for (const earlier of document.querySelectorAll(".toast")) earlier.remove();
  const toast = h("div", { class: "toast", role: "status" }, text);
  document.body.append(toast);
  setTimeout(() => toast.remove(), 1600);
}
