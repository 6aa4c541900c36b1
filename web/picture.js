// A scene as the text of an SVG file: what a picture without a browser is made with.
import { opened, read } from "./data.js";
import { scene } from "./graph.js";
import { r } from "./layout.js";
import { width } from "./letters.js";

const STYLE = `text{font-family:Inter,"Helvetica Neue",Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#1b2430;font-size:13px}
.title,.often{font-weight:600}.detail{font-size:12px;fill:#66717f}.often{fill:#3366e0}
.name,.variable,.port,.shape,.sign{font-family:"JetBrains Mono","DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:12px}
.port,.shape{font-size:11px}.variable,.name.view{fill:#7b8594}.port{fill:#8a94a3}.shape{fill:#0f766e}.bad{fill:#b91c1c}.sign{font-size:14px}
.group{fill:#f6f8fa;stroke:#cdd4de}.group.even{fill:#fcfdfe}.group.back{fill:#fff}.box{fill:#fff;stroke:#c3cad5}.box.view{stroke:#e3e7ed}.outside{fill:#f4f6f9;stroke:#aab4c2;stroke-dasharray:3 3}
.edge{fill:none;stroke:#98a2b1;stroke-width:1.2}.edge.quiet{stroke:#b9c1cc}.edge.carried{stroke-dasharray:5 3}.dot{fill:#fff;stroke:#98a2b1}.head{fill:none}.chevron{fill:none;stroke:#8a94a3;stroke-width:1.4}
.box.failed,.group.failed{stroke:#dc2626}.box.failed{fill:#fef2f2}.title.failed,.name.failed,.cross{fill:#c01f1f}
.hue{stroke:none;fill:#9aa4b2}.weights{fill:#3f6fe8}.norm{fill:#2f9488}.activation{fill:#d9694f}.attention{fill:#7c5fd0}.pool{fill:#75829b}.dropout{fill:#b9a0a4}.loss,.train{fill:#c26484}`;

export function picture(json, depth, most) {
  const model = read(JSON.parse(json));
  const open = opened(model, most || 26, depth < 0 ? null : depth);
  return svg(scene(model, { model, open }));
}

export function svg(drawn) {
  const w = Math.ceil(drawn.w + 40), h = Math.ceil(drawn.h + 40);
  const marks = drawn.marks.filter((mark) => mark.toggle === undefined && mark.edge === undefined).map(element).join("\n");
  const arrow = '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M1,1L7,4L1,7" fill="none" stroke="#98a2b1" stroke-width="1.3"/></marker>';
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-20 -20 ${w} ${h}" width="${w}" height="${h}"><style>${escapeText(STYLE)}</style><defs>${arrow}</defs><rect x="-20" y="-20" width="${w}" height="${h}" fill="#fff"/>\n${marks}\n</svg>\n`;
}

function element(mark) {
  const c = ` class="${mark.c.trim()}"`;
  if (mark.t === "rect") return `<rect x="${r(mark.x)}" y="${r(mark.y)}" width="${r(mark.w)}" height="${r(mark.h)}" rx="${mark.r}"${c}/>`;
  if (mark.t === "circle") return `<circle cx="${r(mark.x)}" cy="${r(mark.y)}" r="${mark.r}"${c}/>`;
  if (mark.t === "path") return `<path d="${mark.d}"${c}${mark.arrow ? ' marker-end="url(#arrow)"' : ""}/>`;
  const anchor = mark.anchor ? ` text-anchor="${mark.anchor}"` : "";
  return `<text x="${r(mark.x)}" y="${r(mark.y)}"${anchor}${c}${fitted(mark)}>${escapeText(mark.s)}</text>`;
}

// Whatever type a viewer has, a text takes the room that was made for it.
const TYPES = { title: [13, true], often: [13, true], detail: [12, false] };
function fitted(mark) {
  const type = TYPES[mark.c.trim().split(" ")[0]];
  return type ? ` textLength="${r(width(mark.s, type[0], false, type[1]))}" lengthAdjust="spacingAndGlyphs"` : "";
}

export function escapeText(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd").replace(/[&<>"']/g, (letter) => `&#${letter.codePointAt(0)};`);
}
